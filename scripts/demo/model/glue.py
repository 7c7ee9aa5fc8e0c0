"""Owns the small parts that every block shares: norm, hyper-connection, causal convolution, rotary embedding, MLP."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.architecture import Architecture


class RMSNorm(nn.Module):
    """x / rms(x) * (1 + weight) in fp32; with `group`, each group of channels is normalised on its own."""

    def __init__(self, width: int, group: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.group = group or width

    def forward(self, x: Tensor) -> Tensor:
        grouped = x.float().unflatten(-1, (-1, self.group))
        grouped = grouped * torch.rsqrt(grouped.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (grouped.flatten(-2) * (1 + self.weight.float())).to(x.dtype)


class HyperConnection(nn.Module):
    """Mixes the residual streams into one block input and says how strongly each stream takes the block's output."""

    def __init__(self, arch: Architecture, inject: bool = True) -> None:
        super().__init__()
        self.streams, self.hidden = arch.hc_count, arch.hidden_size
        width = self.streams * self.hidden
        self.hc_norm = RMSNorm(width, self.hidden)
        self.input_mix_weight_down = nn.Linear(width, arch.hc_lowrank, bias=False)
        self.input_mix_weight_up = nn.Linear(arch.hc_lowrank, width, bias=False)
        self.block_inject_weight = nn.Linear(width, self.streams, bias=False) if inject else None

    def forward(self, residual: Tensor) -> tuple[Tensor, Tensor | None]:
        normed = self.hc_norm(residual)
        low = functional.silu(self.input_mix_weight_down(normed) / self.streams)
        mix = torch.sigmoid(self.input_mix_weight_up(low))
        mixed = (mix * normed).unflatten(-1, (self.streams, self.hidden)).float().mean(-2).to(residual.dtype)
        if self.block_inject_weight is None:
            return mixed, None
        return mixed, 2 * torch.sigmoid(self.block_inject_weight(normed) / self.streams)


def inject(residual: Tensor, block_output: Tensor, strength: Tensor) -> Tensor:
    """Adds a block's output [.., H] to every stream of the residual [.., S*H], weighted by `strength` [.., S]."""
    return residual + (block_output.unsqueeze(-2) * strength.unsqueeze(-1)).flatten(-2).to(residual.dtype)


def causal_conv(x: Tensor, weight: Tensor, dilation: int, position: Tensor | None) -> Tensor:
    """Depthwise causal convolution of x [B, T, C] by weight [C, K].

    `position` [B, T] counts from the start of each packed document; taps that reach before it read zero.
    """
    num_taps = weight.shape[-1]
    total = x * weight[:, -1]
    for tap in range(num_taps - 1):
        distance = (num_taps - 1 - tap) * dilation
        shifted = functional.pad(x, (0, 0, distance, 0))[:, : x.shape[1]] * weight[:, tap]
        if position is not None:
            shifted = shifted * (position >= distance)[..., None]
        total = total + shifted
    return total


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of the first cos.shape[-1] dims of x [B, T, heads, D]; the rest passes through."""
    width = cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    swapped = torch.cat([-turned[..., width // 2 :], turned[..., : width // 2]], -1)
    return torch.cat([turned * cos + swapped * sin, rest], -1)


class GatedMLP(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
