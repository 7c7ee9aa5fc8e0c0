"""Draws the next token of each row. Owns the math of sampling; keeps no state but the caller's generators.

Order, per row: penalties over generated tokens, temperature, top-k, top-p, min-p, one uniform draw.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.options import SamplingOptions


@dataclass(frozen=True)
class Sampled:
    """`ids` int64 [rows]; `logprobs` fp32 [rows].

    A log-probability is that of the model's own distribution, before penalties, temperature and cuts. It is NaN where
    the logits are.
    """

    ids: Tensor
    logprobs: Tensor


def make_generator(seed: int | None) -> torch.Generator:
    """A request's own source of randomness, on the CPU on every device; None takes a seed from the system."""
    generator = torch.Generator("cpu")
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed % 2**63)
    return generator


def sample(
    logits: Tensor,
    params: Sequence[SamplingOptions],
    generated: Sequence[Collection[int]],
    generators: Sequence[torch.Generator],
) -> Sampled:
    """One token per row of `logits`, fp32 [rows, vocab].

    `generated` are the ids each row's request has made so far (a set is enough). A row's token depends on its own
    logits, options, ids and generator only; a greedy row draws nothing from its generator. Among equal logits greedy
    takes the lowest id.
    """
    rows = zip(logits, params, generated, generators, strict=True)
    ids = torch.stack([_sample_row(*row) for row in rows])
    chosen = logits.gather(1, ids[:, None]).squeeze(1)
    return Sampled(ids, chosen - torch.logsumexp(logits, dim=1))


def _sample_row(
    logits: Tensor, options: SamplingOptions, generated: Collection[int], generator: torch.Generator
) -> Tensor:
    logits = penalise(logits, options, generated)
    if options.temperature == 0.0:
        return logits.argmax()
    scaled = (logits.double() - logits.max()) / options.temperature
    weights = scaled.exp() * (scaled >= threshold(scaled, options))
    cumulative = weights.cumsum(0)
    draw = torch.rand((), generator=generator, dtype=torch.float64).to(logits.device, non_blocking=True)
    return torch.searchsorted(cumulative, draw * cumulative[-1], right=True).clamp(max=len(logits) - 1)


def penalise(logits: Tensor, options: SamplingOptions, generated: Collection[int]) -> Tensor:
    """Logits [vocab] with the penalties of tokens that were generated before; prompt tokens are not penalised.

    Repetition divides positive and multiplies negative logits (Keskar et al. 2019, as in transformers); presence is
    then subtracted once, however often a token came.
    """
    if not generated or (options.presence_penalty == 0.0 and options.repetition_penalty == 1.0):
        return logits
    seen = torch.tensor(sorted(set(generated)), device=logits.device)
    values = logits[seen]
    values = torch.where(values > 0, values / options.repetition_penalty, values * options.repetition_penalty)
    return logits.index_copy(0, seen, values - options.presence_penalty)


def threshold(scaled: Tensor, options: SamplingOptions) -> Tensor:
    """The least of `scaled` [vocab] (fp64, maximum 0) that survives top-k, top-p and min-p, a scalar tensor.

    Top-p keeps the fewest most probable of the top-k tokens whose share of their mass reaches p; min-p keeps what has
    at least that fraction of the best token's probability. Tokens that tie with the last one kept are kept.
    """
    least = scaled.new_tensor(math.log(options.min_p) if options.min_p > 0.0 else -math.inf)
    num_best = min(options.top_k or len(scaled), len(scaled))
    if num_best == len(scaled) and options.top_p == 1.0:
        return least
    best = torch.topk(scaled, num_best).values
    last = best[-1]
    if options.top_p < 1.0:
        cumulative = best.exp().cumsum(0)
        place = torch.searchsorted(cumulative, options.top_p * cumulative[-1:]).clamp(max=num_best - 1)
        last = best[place].squeeze(0)
    return torch.maximum(least, last)
