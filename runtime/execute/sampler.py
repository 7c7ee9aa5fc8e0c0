"""Draws the next token of requests outside of a decode graph, and the numbers that every draw uses.

The n-th number of a request is a function of its seed and n alone: whoever draws, ahead of time or twice, gets the
same one. The math is `kernels/torch_ops/sampler.py`.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.kernels.ops import select_ops
from runtime.kernels.torch_ops.sampler import pack_options
from runtime.options import SamplingOptions

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Sampled:
    """`ids` int64 [rows]; `logprobs` fp32 [rows].

    A log-probability is that of the model's own distribution, before penalties, temperature and cuts. It is NaN where
    the logits are.
    """

    ids: Tensor
    logprobs: Tensor


@dataclass(frozen=True)
class DrawnToken:
    """One token on the host, with its log-probability (see `Sampled`)."""

    token_id: int
    logprob: float


@dataclass(frozen=True)
class Draws:
    """A request's own source of randomness: number `index` is a hash of both (SplitMix64, Steele et al. 2014)."""

    seed: int
    """64 bits."""

    @classmethod
    def of(cls, seed: int | None) -> "Draws":
        """None takes a seed from the system."""
        return cls(secrets.randbits(64) if seed is None else seed & _MASK)

    def number(self, index: int) -> float:
        """Number 0, 1, … of the request, in [0, 1), with 53 bits."""
        mixed = _mix((_mix((self.seed + _GOLDEN) & _MASK) + (index + 1) * _GOLDEN) & _MASK)
        return float((mixed >> 11) * 2.0**-53)


@dataclass(frozen=True)
class RowDraw:
    """What the device needs to draw one row's token by itself."""

    choice: Tensor
    """fp64 [6], of `pack_options`."""
    number: float
    generated: Collection[int] = ()
    """For penalties: what was generated so far, where the host knows all of it; none where there are no penalties."""


def sample(
    logits: Tensor,
    params: Sequence[SamplingOptions],
    generated: Sequence[Collection[int]],
    numbers: Sequence[float],
) -> Sampled:
    """One token per row of `logits`, fp32 [rows, vocab].

    `generated` are the ids each row's request has made so far (a set is enough), `numbers` are in [0, 1). A row's token
    depends on its own logits, options, ids and number only, and a greedy row's not on its number.
    """
    device, num_rows = logits.device, len(params)
    seen = torch.zeros(logits.shape, dtype=torch.uint8)
    for row, ids in enumerate(generated):
        seen[row, list(ids)] = 1
    uniforms = torch.tensor(numbers, dtype=torch.float64)
    inputs = (pack_options(params), seen, torch.arange(num_rows), uniforms)
    return Sampled(*select_ops(device).sample_rows(logits, *(tensor.to(device) for tensor in inputs)))


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)
