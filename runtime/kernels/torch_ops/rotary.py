"""Rotary position embedding on the leading dims of a head, halves paired (i, i + R/2)."""

import torch
from torch import Tensor


def rotary_table(positions: Tensor, inverse_frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [N, 1, R/2] of positions int64 [N] times inverse frequencies fp32 [R/2]."""
    angles = (positions.to(torch.float32).unsqueeze(-1) * inverse_frequencies).unsqueeze(1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """In place on x [N, heads, D]: its first R dims turn by the table's angles, the rest stays. Returns x."""
    cos, sin = table
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = torch.addcmul(first * cos, second, sin, value=-1.0)
    second.mul_(cos).addcmul_(first, sin)
    first.copy_(turned)
    return x
