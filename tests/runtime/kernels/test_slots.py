"""Device *ensure* in tensors: every victim, slot and counter is that of the slot cache and its policies."""

import numpy as np
import pytest
import torch

from runtime.experts.policy import make_policy
from runtime.experts.slot_cache import SlotCache
from runtime.kernels.torch_ops.slots import SlotState, begin_step, copy_missed, ensure
from tests.support.slot_traces import expected_arrivals

SHAPES = [(3, 12, 3, 12), (4, 16, 2, 20), (2, 7, 2, 14), (5, 24, 4, 16)]
"""Layers, experts, choices, slots; four rows."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", ["lru", "rule"])
def test_victims_equal_the_slot_cache(policy: str, shape: tuple[int, int, int, int]) -> None:
    num_layers, num_experts, num_choices, num_slots = shape
    rng = np.random.default_rng(5)
    cache = SlotCache(
        num_layers, num_experts, num_slots, make_policy(policy, num_layers, num_experts),
        num_choices=num_choices, max_rows=4, record_bytes=[100] * num_layers,
    )  # fmt: skip
    state = SlotState.empty(num_layers, num_experts, num_slots, 4 * num_choices, "cpu")
    bank = torch.arange(num_experts, dtype=torch.uint8).unsqueeze(1).expand(-1, 8).contiguous()
    pool = torch.zeros(num_slots, 16, dtype=torch.uint8)
    bias = rng.normal(size=(num_layers, num_experts)) * 2
    for _ in range(150):
        # Now and then long pauses, for the cap of ages and the decay of counts.
        for _ in range(int(rng.choice([1, 1, 1, 1, 70, 17_000], p=[0.24, 0.24, 0.24, 0.24, 0.03, 0.01]))):
            cache.begin_step()
            begin_step(state)
        num_rows = int(rng.integers(1, 5))
        for layer in range(num_layers):
            # A grid, so that equal logits and exact distances of 0.25 occur.
            logits = (np.round((bias[layer] + rng.normal(size=(num_rows, num_experts))) * 16) / 16).astype(np.float32)
            ids = np.argsort(-logits, axis=1, kind="stable")[:, :num_choices].astype(np.int64)
            plan = cache.ensure(layer, ids, logits)
            slots, arrivals = ensure(state, policy, layer, torch.from_numpy(ids), torch.from_numpy(logits), 100)
            num_missed = int(state.num_missed)
            missed = zip(
                state.missed_experts[:num_missed].tolist(), state.missed_slots[:num_missed].tolist(), strict=True
            )
            assert tuple(missed) == plan.missed
            assert slots.tolist() == plan.slots.tolist()
            assert list(zip(*arrivals.tolist(), strict=True)) == expected_arrivals(ids, plan)
            copy_missed(state, bank, pool)
            assert pool[slots.flatten().long(), 7].tolist() == ids.flatten().tolist()
        owners = [layer * num_experts + expert for layer, expert, _ in cache.residents()]
        assert state.owner[: len(owners)].tolist() == owners
    counted = cache.counters
    assert state.counters.tolist() == [counted.num_routed, counted.num_missed, counted.num_missed_bytes]
