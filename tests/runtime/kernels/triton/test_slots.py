"""Device ensure equals the slot cache victim for victim; the copy moves the missed records and nothing else."""

import pytest
import torch

from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops import slots
from tests.support.slot_traces import SideBySide, SlotShape

SHAPES = [SlotShape(3, 12, 3, 12), SlotShape(2, 5, 2, 8), SlotShape(5, 64, 4, 150), SlotShape(1, 512, 10, 40)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("policy", ["lru", "rule"])
def test_victims_equal_the_slot_cache(policy: str, shape: SlotShape, device: torch.device) -> None:
    SideBySide(slots, policy, shape, device, seed=5).run(60 // shape.num_layers)


@pytest.mark.parametrize("policy", ["lru", "rule"])
def test_slots_that_take_turns(policy: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MOST_KEYS", 16)
    SideBySide(slots, policy, SlotShape(3, 24, 3, 43), device, seed=6).run(20)


@pytest.mark.parametrize("policy", ["lru", "rule"])
def test_experts_that_the_host_placed_have_their_own_state(policy: str, device: torch.device) -> None:
    both = SideBySide(slots, policy, SlotShape(3, 10, 2, 9), device, seed=8)
    for _ in range(6):
        both.run(3)
        both.clear_and_place()
        both.compare()
    both.run(3)


def test_a_layer_that_runs_twice_in_a_step_pins_what_it_routes_now(device: torch.device) -> None:
    for policy in ("lru", "rule"):
        both = SideBySide(slots, policy, SlotShape(1, 9, 4, 4, most_rows=1), device, seed=7)
        both.begin_step()
        for _ in range(8):
            both.ensure(0, 1)
        both.compare()


def test_too_many_slots_are_refused(device: torch.device) -> None:
    state = SlotState.empty(1, 4, (1 << 16) + 1, 2, device)
    with pytest.raises(ValueError, match="65537 slots"):
        slots.ensure(state, "lru", 0, torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 4), 1)


@pytest.mark.parametrize("record_bytes", [16, 20_000 // 16 * 16, 16_384])
@pytest.mark.parametrize("missed", [[], [(2, 4)], [(0, 3), (1, 0), (4, 5)]])
def test_copy_moves_the_missed_records(missed: list[tuple[int, int]], record_bytes: int, device: torch.device) -> None:
    bank = torch.randint(0, 256, (5, record_bytes), dtype=torch.uint8)
    bank = bank.pin_memory() if device.type == "cuda" else bank
    # A pool whose slots are wider than this layer's records.
    pool = torch.randint(0, 256, (6, record_bytes + 32), dtype=torch.uint8, device=device)
    expected = pool.clone()
    state = SlotState.empty(1, 5, 6, 5, device)
    state.num_missed.fill_(len(missed))
    for place, (expert, slot) in enumerate(missed):
        state.missed_experts[place], state.missed_slots[place] = expert, slot
        expected[slot, :record_bytes] = bank[expert].to(device)
    slots.copy_missed(state, bank, pool[:, :record_bytes])
    assert torch.equal(pool, expected)


def test_odd_record_sizes_are_refused(device: torch.device) -> None:
    state = SlotState.empty(1, 5, 6, 5, device)
    with pytest.raises(ValueError, match="records of 24"):
        slots.copy_missed(state, torch.empty(5, 24, dtype=torch.uint8), torch.empty(6, 32, dtype=torch.uint8))
    with pytest.raises(ValueError, match="pool must start every row"):
        slots.copy_missed(state, torch.empty(5, 16, dtype=torch.uint8), torch.empty(6, 24, dtype=torch.uint8))


def test_strided_routing_is_refused(device: torch.device) -> None:
    state = SlotState.empty(1, 4, 4, 2, device)
    logits = torch.zeros(4, 2, device=device).t()
    with pytest.raises(ValueError, match="router_logits must be contiguous"):
        slots.ensure(state, "rule", 0, torch.zeros(2, 2, dtype=torch.int64, device=device), logits, 1)
