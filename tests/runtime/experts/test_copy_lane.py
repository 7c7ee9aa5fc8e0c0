"""Prefill's copies beside its products: the same outputs, and no half of the ring is filled while it is read."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from runtime.experts.streamed import StreamedExperts
from runtime.kernels.torch_ops.experts import ExpertCompute
from tests.support.random_experts import make_experts


class LoggedLane:
    """Copies at once, and knows what each half holds: nothing, copies under way, records to be read."""

    def __init__(self) -> None:
        self.states = ["free", "free"]
        self.most_filled = 0

    @contextmanager
    def copying(self, half: int) -> Iterator[None]:
        assert self.states[half] == "free", "it is still read"
        yield
        self.states[half] = "copied"
        self.most_filled = max(self.most_filled, sum(state != "free" for state in self.states))

    def wait(self, half: int) -> None:
        assert self.states[half] == "copied"
        self.states[half] = "read"

    def computed(self, half: int) -> None:
        assert self.states[half] == "read"
        self.states[half] = "free"

    def drain(self) -> None:
        assert self.states == ["free", "free"]


def run(lane: LoggedLane | None, num_ring_slots: int) -> list[Tensor]:
    """Two layers, 30 tokens each, 8 experts, 4 slots that the first layer's half fills."""
    experts = make_experts("nvfp4", hidden=64, intermediate=32)
    slots = experts.in_slots(4, num_ring_slots=num_ring_slots)
    pools = [slots.pool[:, : experts.layout.record_bytes]] * experts.spec.num_layers
    computes = [ExpertCompute(experts.layout)] * experts.spec.num_layers
    streamed = StreamedExperts(experts.store, slots.cache, pools, computes, lane)
    generator = torch.Generator().manual_seed(2)
    outputs = []
    for layer in range(2):
        hidden, logits = torch.randn(30, 64, generator=generator), torch.randn(30, 8, generator=generator)
        outputs.append(streamed.run(layer, hidden, logits.topk(2, -1).indices)[0])
    slots.check_integrity()
    if lane is not None:
        lane.drain()
    return outputs


@pytest.mark.parametrize("num_ring_slots", [2, 3, 4, 16])
def test_outputs_are_those_without_a_lane(num_ring_slots: int) -> None:
    lane = LoggedLane()
    for ours, theirs in zip(run(lane, num_ring_slots), run(None, num_ring_slots), strict=True):
        assert torch.equal(ours, theirs)
    assert lane.most_filled == (2 if num_ring_slots < 12 else 1)


def test_a_ring_of_one_takes_turns() -> None:
    lane = LoggedLane()
    assert torch.equal(run(lane, 1)[1], run(None, 1)[1])
    assert lane.most_filled == 0
