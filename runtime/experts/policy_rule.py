"""`rule`: score = -(k + beta * d / L) + w * log2(c), in integers with 16 fraction bits; the lowest score goes first.

- k: tokens for which the expert has been passed over since its last use: tok - last_tok, or tok - 1 - last_tok where
  its layer is still ahead in this step; capped at 2^14.
- d: layer-steps until its layer runs again, 1 .. L: layer_e - layer_now if ahead, else L - layer_now + layer_e.
- c: use count that halves every 64 tokens. Kept as log2(c), so halving is a subtraction of 1/64 per token.
- beta = 4, w = 3; L layers; tok advances once per decode step.

Fixed point: k is shifted left by 16. beta * d / L is floor(beta * 2^16 * d / L), one table entry per d. The decay of
log2(c) over t tokens is t << 10, exact. A use takes log2(c) = a to log2(2^a + 1) = max(a, 0) + f(|a|) with
f(x) = log2(1 + 2^-x), read from a table of round(2^16 * f(i / 256)) at the nearest i, (|a| + 128) >> 8; from x = 18 on
f is below half a unit and the table ends in 0. A first use starts from `NEVER_LOG2` and so gives exactly c = 1.
"""

import numpy as np
from numpy.typing import NDArray

from runtime.rule_numbers import (
    BETA,
    DECAY_SHIFT,
    FRACTION_BITS,
    LARGEST_AGE,
    LARGEST_STEP,
    LOG2_TABLE,
    LOG2_WEIGHT,
    NEAR_MISS_LOGIT,
    NEVER_LOG2,
    NEVER_TOKEN,
    STEP_BITS,
)


def count_use(log2_count: NDArray[np.int64]) -> NDArray[np.int64]:
    """log2(2^a + 1) of fixed-point a."""
    half = 1 << (FRACTION_BITS - STEP_BITS - 1)
    index = np.minimum((np.abs(log2_count) + half) >> (FRACTION_BITS - STEP_BITS), LARGEST_STEP)
    return np.maximum(log2_count, 0) + LOG2_TABLE[index]


def near_misses(expert_ids: NDArray[np.int64], router_logits: NDArray[np.float32]) -> NDArray[np.bool_]:
    """bool [num_experts]: within `NEAR_MISS_LOGIT` of what some row routed, the routed ones included.

    expert_ids [rows, k], router_logits fp32 [rows, num_experts].
    """
    lowest = np.take_along_axis(router_logits, expert_ids, 1).min(1, keepdims=True)
    is_near: NDArray[np.bool_] = (router_logits >= lowest - NEAR_MISS_LOGIT).any(0)
    return is_near


class RulePolicy:
    """State per (layer, expert): last_tok, log2(c) as of the last use, and the token of that use."""

    name = "rule"

    def __init__(self, num_layers: int, num_experts: int) -> None:
        self._num_experts = num_experts
        self._tok_so_far = np.zeros(1, np.int64)
        self._last_tok = np.full(num_layers * num_experts, NEVER_TOKEN, np.int64)
        self._log2_count = np.full(num_layers * num_experts, NEVER_LOG2, np.int64)
        self._counted_tok = np.zeros(num_layers * num_experts, np.int64)
        layers = np.arange(num_layers)
        distance = (layers[None, :] - layers[:, None] - 1) % num_layers + 1
        self._wait = (BETA << FRACTION_BITS) * distance // num_layers
        """[layer now, layer of the expert]: beta * d / L."""
        self._is_ahead = (layers[None, :] > layers[:, None]).astype(np.int64)

    @property
    def _tok(self) -> int:
        return int(self._tok_so_far[0])

    def begin_step(self) -> None:
        self._tok_so_far += 1

    def note_use(
        self,
        layer: int,
        routed: NDArray[np.int64],
        expert_ids: NDArray[np.int64],
        router_logits: NDArray[np.float32],
    ) -> None:
        """Refresh near misses (last_tok only), then count the routed experts once, however many rows chose them."""
        first = layer * self._num_experts
        last_tok = self._last_tok[first : first + self._num_experts]
        is_near = near_misses(expert_ids, router_logits)
        np.maximum(last_tok, self._tok - 1, out=last_tok, where=is_near)
        used = routed + first
        decayed = self._log2_count[used] - ((self._tok - self._counted_tok[used]) << DECAY_SHIFT)
        self._log2_count[used] = count_use(decayed)
        self._counted_tok[used] = self._tok
        self._last_tok[used] = self._tok

    def scores(self, layer: int, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        owner_layers = owners // self._num_experts
        age = self._tok - self._is_ahead[layer][owner_layers] - self._last_tok[owners]
        decay = (self._tok - self._counted_tok[owners]) << DECAY_SHIFT
        weighted_count = LOG2_WEIGHT * (self._log2_count[owners] - decay)
        return weighted_count - (np.minimum(age, LARGEST_AGE) << FRACTION_BITS) - self._wait[layer][owner_layers]

    def history(self) -> dict[str, NDArray[np.int64]]:
        """Steps so far, and of each expert what the rule reads."""
        return {
            "tok": self._tok_so_far,
            "last_tok": self._last_tok,
            "log2_count": self._log2_count,
            "counted_tok": self._counted_tok,
        }
