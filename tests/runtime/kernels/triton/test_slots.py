"""Device ensure equals the slot cache victim for victim."""

import pytest
import torch

from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops import slots
from runtime.kernels.triton_ops.arrivals import FAR_STRIDE
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


def test_what_had_arrived_is_forgotten(device: torch.device) -> None:
    both = SideBySide(slots, "lru", SlotShape(1, 9, 2, 9), device, seed=3)
    both.state.arrived.fill_(7)
    both.begin_step()
    both.ensure(0, 4)
    assert not both.state.arrived.view(-1, FAR_STRIDE)[:, 0].any()


def test_too_many_slots_are_refused(device: torch.device) -> None:
    state = SlotState.empty(1, 4, (1 << 16) + 1, 2, device)
    with pytest.raises(ValueError, match="65537 slots"):
        slots.ensure(state, "lru", 0, torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 4), 1)


def test_strided_routing_is_refused(device: torch.device) -> None:
    state = SlotState.empty(1, 4, 4, 2, device)
    logits = torch.zeros(4, 2, device=device).t()
    with pytest.raises(ValueError, match="router_logits must be contiguous"):
        slots.ensure(state, "rule", 0, torch.zeros(2, 2, dtype=torch.int64, device=device), logits, 1)
