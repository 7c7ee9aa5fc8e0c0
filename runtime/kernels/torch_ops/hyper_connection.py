"""Gated residual over S streams: mix the streams into one input, inject a block's output back into each.

The equations are those of transformers' Qwen4ExpTextGatedResidual.
"""

import torch
from torch import Tensor
from torch.nn import functional

from runtime.kernels.torch_ops.linear import linear
from runtime.kernels.torch_ops.norms import rms_norm


def mix_streams(
    residual: Tensor, scale: Tensor, down: Tensor, up: Tensor, num_streams: int, eps: float
) -> tuple[Tensor, Tensor]:
    """n = grouped rms_norm(residual); m = sigmoid(up @ silu(down_r @ n)); input = mean over streams of m * n.

    residual [N, S*H]; scale [S, H]; down [R + I, S*H]: R rows of the low-rank mixer, then I = S rows of the inject gate
    (or none), all divided by S beforehand; up [S*H, R]; results have the residual's dtype, weights may be
    narrower.
    Returns input [N, H] and inject weights 2 * sigmoid(down_i @ n) [N, I].
    """
    streams = residual.unflatten(-1, scale.shape)
    normed = rms_norm(streams, scale, eps)
    lowrank, inject = linear(normed.view(residual.shape), down).tensor_split((up.shape[1],), dim=-1)
    weights = linear(functional.silu(lowrank), up).sigmoid_().view(streams.shape)
    mixed = weights.mul_(normed).mean(dim=1)
    return mixed, torch.sigmoid(inject).mul_(2.0)


def inject_output(residual: Tensor, output: Tensor, inject: Tensor) -> None:
    """In place: stream s of residual [N, S*H] += inject[:, s] * output; output [N, H], inject [N, S].

    Added in the residual's dtype, whatever the output's.
    """
    num_rows, num_streams = inject.shape
    residual.view(num_rows, num_streams, -1).addcmul_(output.unsqueeze(1), inject.unsqueeze(2))


def inject_and_mix(
    residual: Tensor,
    output: Tensor,
    inject: Tensor,
    scale: Tensor,
    down: Tensor,
    up: Tensor,
    num_streams: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """`inject_output`, in place, and of its result `mix_streams`."""
    inject_output(residual, output, inject)
    return mix_streams(residual, scale, down, up, num_streams, eps)
