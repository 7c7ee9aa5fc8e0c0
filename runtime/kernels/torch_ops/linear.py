"""Products with dense weights. Activations are fp32 or wider; weights may be stored narrower, and lose nothing more.

A product of a narrow weight and a wide activation is computed as if the weight had been widened first.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from runtime.kernels.torch_ops.conv import conv_rows
from runtime.kernels.torch_ops.fp8 import e4m3_values

MOST_ROWS = 4
"""Of a decode step."""
WIDENED_BYTES, DEVICE_WIDENED_BYTES = 1 << 20, 64 << 20
"""Of an e4m3 weight in fp32 at once: on a CPU what its cache holds, on a GPU enough to keep it busy."""
EXACT_ELEMENTS = 4 << 20
"""Of a weight: up to so many, a GPU's products for long chunks keep all 24 bits of x, beyond it 16.

So a small model, whose keys and values are fp32, too, routes as it does on a CPU. A large model's keys, in fp16, move
its routers' logits more than the lost bits do; its routers, hyper-connections and shared experts are small weights.
"""


def linear(
    x: Tensor, weight: Tensor, scale: Tensor | None = None, exact: Tensor | None = None, is_fork: bool = False
) -> Tensor:
    """x @ weight^T in x's dtype. x [N, K] fp32 or fp64; weight [O, K] of that dtype, or bf16 or fp16.

    With `scale` fp32 [O], of `quantise_rows`, the weight is e4m3 bytes uint8 [O, K]; the outputs of `exact` [P, K], a
    weight without scale, then come after its own.
    `is_fork` says that the product begins a branch; here it changes nothing.
    Up to `MOST_ROWS` rows, those of a decode step, a row's bits don't depend on the others.
    """
    if 1 < x.shape[0] <= MOST_ROWS:
        return torch.cat([linear(row, weight, scale, exact) for row in x.split(1)])
    if exact is not None:
        return torch.cat((linear(x, weight, scale), linear(x, exact)), dim=1)
    if scale is not None:
        return _scaled_linear(x, weight, scale)
    if weight.dtype == x.dtype:
        return functional.linear(x, weight)
    if _is_on_tensor_cores(x) and weight.dtype == torch.bfloat16 and x.dtype == torch.float32:
        return _split_linear(x, weight)
    return functional.linear(x, weight.to(x.dtype))


def silu_linear(gate_up: Tensor, is_gated: bool, weight: Tensor, scale: Tensor | None = None) -> Tensor:
    """`linear` of `silu_product(gate_up, K, is_gated)` for a weight [O, K]."""
    return linear(silu_product(gate_up, weight.shape[1], is_gated), weight, scale)


class Convolved(NamedTuple):
    """A causal convolution over a product's first C outputs, one new token in each of R sequences."""

    pool: Tensor
    """[rows, taps - 1, C]: histories."""
    state_rows: Tensor
    """int64 [R], distinct: which of them are read and move on."""
    taps: Tensor
    """[taps, C], the last for the new token."""


def linear_conv(
    x: Tensor, convolved: Convolved, weight: Tensor, scale: Tensor | None = None, exact: Tensor | None = None
) -> Tensor:
    """`linear`, and `conv_rows` of dilation 1 on its first outputs. x [R, K], a row for each sequence."""
    outputs = linear(x, weight, scale, exact)
    channels = outputs[:, : convolved.taps.shape[1]]
    channels.copy_(conv_rows(channels, *convolved, 1))
    return outputs


def silu_product(gate_up: Tensor, width: int, is_gated: bool = False) -> Tensor:
    """silu(gate) * up [N, width] of rows [gate, up, ...], gate and up each `width` wide.

    With `is_gated` also times the sigmoid of what comes next in the row: gating the products of the next weight would
    come to the same.
    """
    product = functional.silu(gate_up[:, :width]).mul_(gate_up[:, width : 2 * width])
    return product.mul_(torch.sigmoid(gate_up[:, 2 * width : 2 * width + 1])) if is_gated else product


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """e4m3 bytes uint8 [O, K] and scales fp32 [O] of a weight [O, K]: each row reaches 448, e4m3's largest number."""
    wide = weight.float()
    largest = wide.abs().amax(-1).clamp_min(1e-12)
    # By a tensor: a GPU divides by a number as it multiplies by its inverse, and would round other weights otherwise.
    scale = largest / torch.full_like(largest, 448.0)
    return (wide / scale.unsqueeze(1)).to(torch.float8_e4m3fn).view(torch.uint8), scale


def _scaled_linear(x: Tensor, values: Tensor, scale: Tensor) -> Tensor:
    """Widened a few outputs at a time: bf16, which tensor cores multiply, holds e4m3 as exactly as fp32 does."""
    num_outputs, width = values.shape
    dtype = torch.bfloat16 if x.is_cuda and x.dtype == torch.float32 else x.dtype
    step = max(1, (DEVICE_WIDENED_BYTES if x.is_cuda else WIDENED_BYTES) // (4 * width))
    output = x.new_empty(x.shape[0], num_outputs)
    for begin in range(0, num_outputs, step):
        outputs = slice(begin, begin + step)
        output[:, outputs] = linear(x, e4m3_values(values[outputs], dtype))
    return output.mul_(scale)


def _is_on_tensor_cores(x: Tensor) -> bool:
    return x.is_cuda


def _split_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Tensor cores multiply 16-bit numbers and add in fp32: x as the sum of two of them keeps 16 of its 24 bits, of
    three all.

    One product of all parts reads the weight once and needs no widened copy of it.
    """
    parts = split_parts(x, 3 if weight.numel() <= EXACT_ELEMENTS else 2)
    *larger, total = _narrow_product(parts.flatten(0, 1), weight).split(x.shape[0])
    # The smallest first: they lose the fewest bits.
    for product in reversed(larger):
        total.add_(product)
    return total


def split_parts(x: Tensor, num_parts: int) -> Tensor:
    """bf16 [num_parts, N, K] whose sum is fp32 x [N, K] but for its last bits: three bf16 hold them all."""
    parts, rest = torch.empty(num_parts, *x.shape, dtype=torch.bfloat16, device=x.device), x
    for part in parts:
        part.copy_(rest)
        rest = rest - part
    return parts


def _narrow_product(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight^T of bf16 numbers, added up in fp32; a CPU's torch knows it as that of fp32 numbers only."""
    if x.is_cuda:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return functional.linear(x.float(), weight.float())
