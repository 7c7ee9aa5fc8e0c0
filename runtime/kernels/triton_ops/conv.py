"""Causal depthwise convolution of one new token per sequence: the twin of `torch_ops.conv.conv_rows`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.rows import row_kernel, silu


def conv_rows(x: Tensor, pool: Tensor, state_rows: Tensor, weight: Tensor, dilation: int) -> Tensor:
    """silu of the taps' sum, oldest first; the histories of `state_rows` move on.

    x fp32 [R, C], rows contiguous; pool [rows, (K-1)*dilation, C] fp32 or narrower; weight fp32 [K, C]. Returns [R, C].
    """
    num_rows, width = x.shape
    output = torch.empty(num_rows, width, dtype=torch.float32, device=x.device)
    block = min(256, triton.next_power_of_2(width))
    _conv_kernel[(num_rows, triton.cdiv(width, block))](
        x, x.stride(0), pool, pool.stride(0), state_rows, weight, output,
        num_taps=weight.shape[0], dilation=dilation, width=width, block=block, num_warps=2,
    )  # fmt: skip
    return output


@row_kernel
def _conv_kernel(
    x, x_stride, pool, pool_stride, state_rows, weight, output,
    num_taps: tl.constexpr, dilation: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    places = tl.program_id(1) * block + tl.arange(0, block)
    is_real = places < width
    history = pool + tl.load(state_rows + row) * pool_stride + places
    length: tl.constexpr = (num_taps - 1) * dilation
    newest = tl.load(x + row * x_stride + places, mask=is_real, other=0.0)
    total = tl.zeros((block,), tl.float32)
    for tap in tl.static_range(num_taps - 1):
        held = tl.load(history + tap * dilation * width, mask=is_real, other=0.0).to(tl.float32)
        total = tl.fma(held, tl.load(weight + tap * width + places, mask=is_real), total)
    # A pass of its own, so that no load above waits for a store. Each thread moves its own channels.
    for age in tl.static_range(1, length):
        tl.store(history + (age - 1) * width, tl.load(history + age * width, mask=is_real), mask=is_real)
    tl.store(history + (length - 1) * width, newest, mask=is_real)
    total = tl.fma(newest, tl.load(weight + (num_taps - 1) * width + places, mask=is_real), total)
    tl.store(output + row * width + places, silu(total), mask=is_real)
