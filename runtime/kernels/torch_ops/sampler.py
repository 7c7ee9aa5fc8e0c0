"""Draws the next token of each row, in integers, so that every device draws the same token from the same logits.

Per row: penalties over generated tokens, temperature, top-k, top-p, min-p, one number. A token's *key* is how far its
scaled logit lies below the best, in 2**-24 of a factor of two; its *weight* is 2**-key, in 2**-44 of the best token's,
by a polynomial in integers. Whatever is summed is integers, in any order. Tokens of one key count as equal: their
probabilities differ by less than 1e-7 of themselves. What has less than 2**-45 of the best token's is never drawn.

Exact: the drawn token, given logits and number. Not exact, by round-off of fp32: the log-probability.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from runtime.options import SamplingOptions

KEY_BITS = 24
"""Of a key, those below a factor of two."""
KEY_END = 46 << KEY_BITS
"""Keys end here; from one factor of two before it, a weight is zero."""
POLYNOMIAL_BITS = 38
POLYNOMIAL = (
    274877906944, 190530846196, 66032959340, 15256851445, 2643797035, 366454068, 42219810, 4045753, 267805,
)  # fmt: skip
"""2**-x for 0 <= x < 1 as c0 - x(c1 - x(c2 - …)), in 2**-38: interpolated at Chebyshev's points, within 3e-11."""
WEIGHT_BITS = 44
"""2**18 tokens of the greatest weight still sum up below 2**63."""
NUM_CHOICES = 6


def pack_options(options: Sequence[SamplingOptions]) -> Tensor:
    """fp64 [R, 6] for `sample_rows`: keys per unit of logits (0: greedy), top-k, top-p, the greatest key that min-p
    keeps, presence and repetition penalty."""
    rows = [
        (
            math.log2(math.e) * 2**KEY_BITS / row.temperature if row.temperature > 0.0 else 0.0,
            row.top_k,
            row.top_p,
            min(-math.log2(row.min_p) * 2**KEY_BITS // 1, KEY_END) if row.min_p > 0.0 else KEY_END,
            row.presence_penalty,
            row.repetition_penalty,
        )
        for row in options
    ]
    return torch.tensor(rows, dtype=torch.float64)


def sample_rows(
    logits: Tensor, choices: Tensor, seen: Tensor, seen_rows: Tensor, uniforms: Tensor
) -> tuple[Tensor, Tensor]:
    """Ids int64 [R] and log-probabilities fp32 [R], those of the model's own distribution; NaN where logits are.

    logits fp32 [R, V], rows contiguous; choices of `pack_options`; seen uint8 [rows, V], of which row seen_rows int64
    [R] marks the tokens that were generated and gets the new one; uniforms fp64 [R] in [0, 1), unused by greedy rows.
    Ties with the last token kept are kept; greedy takes the lowest id of the best; a token that is NaN is not drawn.
    """
    ids = torch.stack(
        [
            _sample_row(penalise(row, seen[place], choice), choice, float(uniform))
            for row, choice, place, uniform in zip(logits, choices, seen_rows.tolist(), uniforms, strict=True)
        ]
    )
    seen[seen_rows, ids] = 1
    return ids, torch.log_softmax(logits, dim=1).gather(1, ids[:, None]).squeeze(1)


def penalise(logits: Tensor, seen: Tensor, choice: Tensor) -> Tensor:
    """Logits [V] with the penalties of tokens that were generated before, uint8 [V]; prompt tokens are not penalised.

    Repetition divides positive and multiplies negative logits (Keskar et al. 2019, as in transformers); presence is
    then subtracted once, however often a token came.
    """
    presence, repetition = choice[4].float(), choice[5].float()
    if presence == 0.0 and repetition == 1.0:
        return logits
    penalised = torch.where(logits > 0, logits / repetition, logits * repetition) - presence
    return torch.where(seen != 0, penalised, logits)


def weights_of(keys: Tensor) -> Tensor:
    """int64 [n]: 2**-key in 2**-44, of int32 keys [n]."""
    fraction = (keys & ((1 << KEY_BITS) - 1)).long()
    power = torch.full_like(fraction, POLYNOMIAL[-1])
    for coefficient in reversed(POLYNOMIAL[:-1]):
        # In place: a vocabulary of these is megabytes.
        torch.sub(coefficient, power.mul_(fraction).bitwise_right_shift_(KEY_BITS), out=power)
    power.bitwise_left_shift_(WEIGHT_BITS - POLYNOMIAL_BITS)
    return power.bitwise_right_shift_((keys >> KEY_BITS).long())


def _sample_row(logits: Tensor, choice: Tensor, uniform: float) -> Tensor:
    logits = torch.where(logits.isnan(), -math.inf, logits)
    keys_per_unit, top_k, top_p, most_key = choice[:4].tolist()
    if keys_per_unit == 0.0:
        return logits.argmax()
    peak = logits.max()
    distances = (peak.double() - logits.double()) * keys_per_unit
    # The peak's distance to itself is no number where it is infinite.
    keys = torch.where(logits == peak, 0.0, distances.clamp(max=KEY_END)).int()
    kept = (keys <= min(int(most_key), _greatest_key(keys, int(top_k), top_p))).nonzero().squeeze(1)
    cumulative = weights_of(keys[kept]).cumsum(0)
    total = int(cumulative[-1])
    goal = min(int(uniform * float(total)), total - 1)
    return kept[torch.searchsorted(cumulative, goal, right=True)]


def _greatest_key(keys: Tensor, top_k: int, top_p: float) -> int:
    """The greatest of int32 keys [V] that survives top-k and top-p.

    Top-p keeps the fewest most probable of the top-k tokens whose share of their mass reaches p.
    """
    num_best = min(top_k or len(keys), len(keys))
    if num_best == len(keys) and top_p == 1.0:
        return KEY_END
    best = torch.topk(keys, num_best, largest=False).values
    if top_p == 1.0:
        return int(best[-1])
    cumulative = weights_of(best).cumsum(0)
    needed = max(1, int(top_p * float(cumulative[-1])))
    return int(best[torch.searchsorted(cumulative, needed)])
