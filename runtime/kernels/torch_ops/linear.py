"""Products with dense weights. Activations are fp32 or wider; weights may be stored narrower, and lose nothing more.

A product of a narrow weight and a wide activation is computed as if the weight had been widened first.
"""

import torch
from torch import Tensor
from torch.nn import functional

MOST_ROWS = 4
"""Of a decode step."""


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight^T in x's dtype. x [N, K] fp32 or fp64; weight [O, K] of that dtype, or bf16 or fp16.

    Up to `MOST_ROWS` rows, those of a decode step, a row's bits don't depend on the others.
    """
    if 1 < x.shape[0] <= MOST_ROWS:
        return torch.cat([linear(row, weight) for row in x.split(1)])
    if weight.dtype == x.dtype:
        return functional.linear(x, weight)
    if x.is_cuda and weight.dtype == torch.bfloat16 and x.dtype == torch.float32:
        return _split_linear(x, weight)
    return functional.linear(x, weight.to(x.dtype))


def silu_product(gate_up: Tensor, width: int) -> Tensor:
    """silu(gate) * up [N, width] of rows [gate, up, ...], gate and up each `width` wide."""
    return functional.silu(gate_up[:, :width]).mul_(gate_up[:, width : 2 * width])


def _split_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Tensor cores multiply 16-bit numbers and add in fp32: x as the sum of two of them keeps 16 of its 24 bits.

    One product of both halves reads the weight once and needs no widened copy of it.
    """
    high = x.to(weight.dtype)
    low = (x - high).to(weight.dtype)
    products = torch.mm(torch.cat((high, low)), weight.t(), out_dtype=torch.float32)
    return products[: x.shape[0]].add_(products[x.shape[0] :])
