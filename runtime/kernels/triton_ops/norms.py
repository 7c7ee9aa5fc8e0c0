"""RMS norms of rows: the twins of `torch_ops.norms`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.rows import row_kernel, row_sum, sigmoid, silu


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x**2) + eps) * scale over the last dimension, in fp32, rounded once to x's dtype.

    x [..., D], two or three dimensions, the last one contiguous; scale fp32 [D] or, for three dimensions, [groups, D].
    """
    grouped = x if x.dim() == 3 else x.unsqueeze(1)
    num_rows, num_groups, width = grouped.shape
    output = torch.empty(grouped.shape, dtype=x.dtype, device=x.device)
    _rms_norm_kernel[(num_rows, num_groups)](
        grouped, grouped.stride(0), grouped.stride(1), scale, scale.stride(0) if scale.dim() == 2 else 0, output, eps,
        num_groups=num_groups, width=width, block=triton.next_power_of_2(width), num_warps=_warps_of(width),
    )  # fmt: skip
    return output.view(x.shape)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, is_sigmoid: bool) -> Tensor:
    """rms_norm(x, weight) times sigmoid(gate) or silu(gate). x, gate [N, D], rows contiguous; weight fp32 [D]."""
    num_rows, width = x.shape
    output = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _gated_rms_norm_kernel[(num_rows,)](
        x, x.stride(0), gate, gate.stride(0), weight, output, eps,
        is_sigmoid=is_sigmoid, width=width, block=triton.next_power_of_2(width), num_warps=_warps_of(width),
    )  # fmt: skip
    return output


def _warps_of(width: int) -> int:
    """Of a block that holds one row: by the shape of the row alone."""
    return 1 if width <= 256 else 4 if width <= 2048 else 8


@triton.jit
def normalised(values, eps, width: tl.constexpr):
    """values / rms of one row, fp32 [block]; places past `width` must hold zeros."""
    return values * tl.rsqrt(row_sum(values * values, 0) / width + eps)


@row_kernel
def _rms_norm_kernel(
    x, row_stride, group_stride, scale, scale_stride, output, eps,
    num_groups: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, group = tl.program_id(0), tl.program_id(1)
    places = tl.arange(0, block)
    is_real = places < width
    values = tl.load(x + row * row_stride + group * group_stride + places, mask=is_real, other=0.0).to(tl.float32)
    factors = tl.load(scale + group * scale_stride + places, mask=is_real, other=0.0)
    tl.store(output + (row * num_groups + group) * width + places, normalised(values, eps, width) * factors, is_real)


@row_kernel
def _gated_rms_norm_kernel(
    x, x_stride, gate, gate_stride, weight, output, eps,
    is_sigmoid: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    places = tl.arange(0, block)
    is_real = places < width
    values = tl.load(x + row * x_stride + places, mask=is_real, other=0.0).to(tl.float32)
    gates = tl.load(gate + row * gate_stride + places, mask=is_real, other=0.0).to(tl.float32)
    factors = tl.load(weight + places, mask=is_real, other=0.0)
    activated = sigmoid(gates) if is_sigmoid else silu(gates)
    tl.store(output + row * width + places, normalised(values, eps, width) * factors * activated, is_real)
