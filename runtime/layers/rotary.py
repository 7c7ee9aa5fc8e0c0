"""The angles of rotary position embedding: inverse frequencies, stretched by YaRN where a model asks for it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.kernels.ops import Ops
from runtime.spec import AttentionSpec, YarnSpec

RotaryTable = tuple[Tensor, Tensor]
"""cos and sin [N, 1, R/2]."""


@dataclass(frozen=True)
class Rotary:
    """`inverse_frequencies` fp32 [R/2]; cos and sin are multiplied by `factor`."""

    inverse_frequencies: Tensor
    factor: float

    @classmethod
    def of(cls, attention: AttentionSpec, device: torch.device) -> "Rotary":
        """theta ** (-2i / R) for i < R/2, or YaRN's."""
        dims = attention.rotary_dims
        exponents = torch.arange(0, dims, 2, dtype=torch.float32, device=device) / dims
        frequencies = 1.0 / attention.rope_theta**exponents
        if attention.yarn is None:
            return cls(frequencies, 1.0)
        return cls(_stretched(frequencies, attention, attention.yarn), attention.yarn.attention_factor)

    def table(self, positions: Tensor, ops: Ops) -> RotaryTable:
        """cos and sin of positions int64 [N]."""
        cos, sin = ops.rotary_table(positions, self.inverse_frequencies)
        return (cos, sin) if self.factor == 1.0 else (cos.mul_(self.factor), sin.mul_(self.factor))


def _stretched(frequencies: Tensor, attention: AttentionSpec, yarn: YarnSpec) -> Tensor:
    """Fast frequencies stay, slow ones are divided by the factor, those between the borders are blended by dim."""
    low, high = (_border(attention, yarn, turns) for turns in (yarn.beta_fast, yarn.beta_slow))
    if yarn.truncates:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, attention.rotary_dims - 1)
    dims = torch.arange(attention.rotary_dims // 2, dtype=torch.float32, device=frequencies.device)
    slow = ((dims - low) / (high - low if high != low else 0.001)).clamp(0, 1)
    return frequencies / yarn.factor * slow + frequencies * (1 - slow)


def _border(attention: AttentionSpec, yarn: YarnSpec, turns: float) -> float:
    """The dim whose frequency turns so many times within the original context."""
    ratio = math.log(yarn.original_tokens / (turns * 2 * math.pi)) / math.log(attention.rope_theta)
    return attention.rotary_dims * ratio / 2
