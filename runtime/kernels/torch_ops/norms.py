"""RMS norms with precomputed scale. All of them normalise the last dimension, in fp32 or wider."""

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x**2) + eps) * scale over the last dimension.

    x [..., D] in any layout, scale broadcastable to x (usually 1 + weight); result [..., D] in x's dtype.
    Computed in fp32, or fp64 for fp64, and rounded once. A grouped norm is this one on a [..., groups, D] view with a
    [groups, D] scale.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return functional.rms_norm(wide, x.shape[-1:], None, eps).mul_(scale).to(x.dtype)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, is_sigmoid: bool) -> Tensor:
    """rms_norm(x, weight) times sigmoid(gate) or silu(gate).

    x, gate [..., D]; weight [D] (plain, not 1 + weight); result [..., D].
    """
    activation = torch.sigmoid(gate) if is_sigmoid else functional.silu(gate)
    return rms_norm(x, weight, eps).mul_(activation)
