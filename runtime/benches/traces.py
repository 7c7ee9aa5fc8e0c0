"""Traces of routing with the misses that were asked for, made by simulating the slot cache. No torch.

A trace is int64 [steps, layers, rows, k]. Whoever replays it over empty slots, with the same policy and with the logits
of `agreeing_logits`, misses what the trace meant.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from runtime.experts.policy import make_policy
from runtime.experts.slot_cache import EMPTY, SlotCache
from runtime.rule_numbers import NEAR_MISS_LOGIT
from runtime.spec import ModelSpec

PASSED_OVER_LOGIT = float(-2 * NEAR_MISS_LOGIT)
"""Logit of who was not routed, where who was has 0: no near misses."""
_USABLE_SLOTS = 0.8
"""Share of a layer's part of the slots that one step's experts may take, so that some are there at the next."""


def agreeing_logits(expert_ids: NDArray[np.int64], num_experts: int) -> NDArray[np.float32]:
    """fp32 [rows, experts] for a policy: the router's own say nothing of experts that it did not choose."""
    logits = np.full((len(expert_ids), num_experts), PASSED_OVER_LOGIT, np.float32)
    np.put_along_axis(logits, expert_ids, 0.0, 1)
    return logits


def num_distinct_routes(spec: ModelSpec, num_slots: int, num_rows: int) -> int:
    """Experts that a layer's rows route to together. Rows share some where the slots could not hold all of a step."""
    num_choices = spec.moe.num_experts_per_token
    fitting = int(_USABLE_SLOTS * num_slots / spec.num_layers)
    return min(spec.moe.num_experts, num_rows * num_choices, max(num_choices, fitting))


def hit_rate_trace(
    spec: ModelSpec, policy: str, num_slots: int, num_steps: int, num_rows: int, hit_rate: float
) -> NDArray[np.int64]:
    """Of each layer's distinct experts `hit_rate` have a slot, once the slots are full."""
    num_distinct = num_distinct_routes(spec, num_slots, num_rows)

    def num_missed(step: int) -> int:
        # Fractions carry over from step to step, so that the mean is exact.
        miss_rate = (1.0 - hit_rate) * num_distinct
        return int((step + 1) * miss_rate) - int(step * miss_rate)

    return _simulate(spec, policy, num_slots, num_steps, num_rows, num_distinct, num_missed)


def fixed_miss_trace(
    spec: ModelSpec, num_slots: int, num_steps: int, num_rows: int, num_missed: int
) -> NDArray[np.int64]:
    """All routes of a layer distinct: exactly `num_missed` misses per layer and step under lru, once the slots are
    full."""
    num_distinct = num_rows * spec.moe.num_experts_per_token
    return _simulate(spec, "lru", num_slots, num_steps, num_rows, num_distinct, lambda step: num_missed)


def _simulate(
    spec: ModelSpec,
    policy: str,
    num_slots: int,
    num_steps: int,
    num_rows: int,
    num_distinct: int,
    num_missed: Callable[[int], int],
) -> NDArray[np.int64]:
    """Every step's experts differ from the last one's as far as that allows."""
    moe, rng = spec.moe, np.random.default_rng(0)
    cache = SlotCache(
        spec.num_layers, moe.num_experts, num_slots, make_policy(policy, spec.num_layers, moe.num_experts),
        num_choices=moe.num_experts_per_token, max_rows=num_rows,
    )  # fmt: skip
    trace = np.empty((num_steps, spec.num_layers, num_rows, moe.num_experts_per_token), np.int64)
    last = np.full((spec.num_layers, num_distinct), EMPTY, np.int64)
    for step in range(num_steps):
        cache.begin_step()
        for layer in range(spec.num_layers):
            slots = cache.slots_of(layer, np.arange(moe.num_experts))
            resident, absent = np.flatnonzero(slots != EMPTY), np.flatnonzero(slots == EMPTY)
            fresh = np.setdiff1d(resident, last[layer])
            resident = fresh if len(fresh) >= num_distinct else resident
            most = min(max(num_missed(step), num_distinct - len(resident)), len(absent))
            missed = rng.choice(absent, most, replace=False)
            hits = rng.choice(resident, num_distinct - len(missed), replace=False)
            last[layer] = rng.permutation(np.concatenate((hits, missed)))
            routed = trace[step, layer] = _dealt(last[layer], num_rows, moe.num_experts_per_token, rng)
            cache.ensure(layer, routed, agreeing_logits(routed, moe.num_experts))
    return trace


def _dealt(experts: NDArray[np.int64], num_rows: int, num_choices: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64 [rows, k]: every expert in some row, and in as few as that allows; a row's own are distinct."""
    rows = []
    for own in np.array_split(experts, num_rows):
        others = rng.permutation(np.setdiff1d(experts, own))
        rows.append(np.concatenate((own, others))[:num_choices])
    return np.stack(rows)
