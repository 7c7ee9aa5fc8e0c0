"""Injected routing misses what was asked for, under both policies."""

import numpy as np
import pytest

from runtime.benches.synthetic import TINY, synthetic_spec
from runtime.benches.traces import agreeing_logits, fixed_miss_trace, hit_rate_trace, num_distinct_routes
from runtime.experts.policy import make_policy
from runtime.experts.slot_cache import SlotCache

SPEC = synthetic_spec(TINY, 4)
NUM_SLOTS, NUM_STEPS, FILL_STEPS = 48, 60, 10


def misses_of(trace: np.ndarray, policy: str) -> list[int]:
    """Per step, counted by the slot cache itself."""
    moe = SPEC.moe
    cache = SlotCache(
        SPEC.num_layers, moe.num_experts, NUM_SLOTS, make_policy(policy, SPEC.num_layers, moe.num_experts),
        num_choices=moe.num_experts_per_token, max_rows=trace.shape[2],
    )  # fmt: skip
    found = []
    for step in trace:
        before = cache.counters.num_missed
        cache.begin_step()
        for layer, expert_ids in enumerate(step):
            cache.ensure(layer, expert_ids, agreeing_logits(expert_ids, moe.num_experts))
        found.append(cache.counters.num_missed - before)
    return found


@pytest.mark.parametrize("policy", ["lru", "rule"])
@pytest.mark.parametrize("num_rows", [1, 2, 4])
def test_the_hit_rate_is_the_one_that_was_asked_for(policy: str, num_rows: int) -> None:
    trace = hit_rate_trace(SPEC, policy, NUM_SLOTS, NUM_STEPS, num_rows, 0.57)
    num_distinct = num_distinct_routes(SPEC, NUM_SLOTS, num_rows)
    for layer in trace.reshape(-1, *trace.shape[2:]):
        assert len(np.unique(layer)) == num_distinct
        assert all(len(np.unique(row)) == SPEC.moe.num_experts_per_token for row in layer)
    missed = sum(misses_of(trace, policy)[FILL_STEPS:])
    routed = (NUM_STEPS - FILL_STEPS) * SPEC.num_layers * num_distinct
    # A step too few or too many carries its fraction over.
    assert 1.0 - missed / routed == pytest.approx(0.57, abs=1.0 / num_distinct / (NUM_STEPS - FILL_STEPS) + 1e-9)


def test_a_fixed_number_of_misses() -> None:
    trace = fixed_miss_trace(SPEC, NUM_SLOTS, NUM_STEPS, 2, 3)
    assert set(misses_of(trace, "lru")[FILL_STEPS:]) == {3 * SPEC.num_layers}
