"""Device *ensure* beside the slot cache and its policies, over random routing."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from runtime.experts.policy import make_policy
from runtime.experts.slot_cache import EnsurePlan, SlotCache
from runtime.kernels.torch_ops.slots import SlotState

RECORD_BYTES = 100
_STEPS_AT_ONCE = 64
_PAUSES, _SHARES = (0, 70, 17_000), (0.97, 0.02, 0.01)
"""Steps in which nothing runs, for the cap of ages and the decay of counts."""


@dataclass(frozen=True)
class SlotShape:
    num_layers: int
    num_experts: int
    num_choices: int
    num_slots: int
    most_rows: int = 4


@dataclass(frozen=True)
class _Call:
    """What the slot cache did, and what the device said, unread until it is compared."""

    missed: tuple[tuple[int, int], ...]
    slots: np.ndarray
    arrivals: list[tuple[int, int, int]]
    device_missed: tuple[Tensor, Tensor, Tensor]
    device_slots: Tensor
    device_arrivals: Tensor


def expected_arrivals(ids: np.ndarray, plan: EnsurePlan) -> list[tuple[int, int, int]]:
    """Route, slot and place in the work list, in the order in which records are there."""
    places = {expert: place for place, (expert, _) in enumerate(plan.missed)}
    found = [
        (route, slot, places.get(expert, -1))
        for route, (expert, slot) in enumerate(zip(ids.flatten().tolist(), plan.slots.flatten().tolist(), strict=True))
    ]
    return sorted(found, key=lambda entry: entry[2])


class SideBySide:
    """One random trace through both; a difference raises AssertionError."""

    def __init__(self, ops: ModuleType, policy: str, shape: SlotShape, device: torch.device, seed: int) -> None:
        self._ops, self._policy, self._shape, self._device = ops, policy, shape, device
        self._rng = np.random.default_rng(seed)
        self.cache = SlotCache(
            shape.num_layers, shape.num_experts, shape.num_slots,
            make_policy(policy, shape.num_layers, shape.num_experts),
            num_choices=shape.num_choices, max_rows=shape.most_rows, record_bytes=[RECORD_BYTES] * shape.num_layers,
        )  # fmt: skip
        most_routes = shape.most_rows * shape.num_choices
        self.state = SlotState.empty(shape.num_layers, shape.num_experts, shape.num_slots, most_routes, device)
        self._bias = self._rng.normal(size=(shape.num_layers, shape.num_experts)) * 2
        self._calls: list[_Call] = []

    def run(self, num_steps: int) -> None:
        """Decode steps of 1 to `most_rows` rows. The device is read after many, since every reading waits for it."""
        for first in range(0, num_steps, _STEPS_AT_ONCE):
            for _ in range(min(_STEPS_AT_ONCE, num_steps - first)):
                self.begin_step()
                num_rows = int(self._rng.integers(1, self._shape.most_rows + 1))
                for layer in range(self._shape.num_layers):
                    self.ensure(layer, num_rows)
            self.compare()

    def begin_step(self) -> None:
        """One step, and now and then a long pause before it."""
        pause = int(self._rng.choice(_PAUSES, p=_SHARES))
        for _ in range(pause + 1):
            self.cache.begin_step()
        self.state.tok.add_(pause)
        self._ops.begin_step(self.state)

    def ensure(self, layer: int, num_rows: int) -> None:
        ids, logits = self._route(layer, num_rows)
        plan = self.cache.ensure(layer, ids, logits)
        slots, arrivals = self._ops.ensure(
            self.state, self._policy, layer,
            torch.from_numpy(ids).to(self._device), torch.from_numpy(logits).to(self._device), RECORD_BYTES,
        )  # fmt: skip
        state = self.state
        missed = (state.num_missed.clone(), state.missed_experts.clone(), state.missed_slots.clone())
        self._calls.append(_Call(plan.missed, plan.slots, expected_arrivals(ids, plan), missed, slots, arrivals))

    def clear_and_place(self) -> None:
        """What the host does between steps: empty the map, then put experts of every layer into the first slots."""
        self.cache.clear()
        self.state.owner.fill_(-1)
        self.state.slot_of.fill_(-1)
        for layer in range(self._shape.num_layers):
            experts = self._rng.permutation(self._shape.num_experts)[: self._shape.num_choices].tolist()
            for expert, slot in self.cache.place(layer, experts):
                self.state.owner[slot] = layer * self._shape.num_experts + expert
                self.state.slot_of[layer, expert] = slot

    def compare(self) -> None:
        """All calls since the last comparison, and where both ended."""
        for call in self._calls:
            num_missed, experts, slots = (tensor.tolist() for tensor in call.device_missed)
            assert tuple(zip(experts, slots, strict=True))[: num_missed[0]] == call.missed
            assert call.device_slots.tolist() == call.slots.tolist()
            assert list(zip(*call.device_arrivals.tolist(), strict=True)) == call.arrivals
        self._calls.clear()
        owners = np.full(self._shape.num_slots, -1)
        slot_of = np.full((self._shape.num_layers, self._shape.num_experts), -1)
        for layer, expert, slot in self.cache.residents():
            owners[slot] = layer * self._shape.num_experts + expert
            slot_of[layer, expert] = slot
        assert self.state.owner.tolist() == owners.tolist()
        assert self.state.slot_of.tolist() == slot_of.tolist()
        counted = self.cache.counters
        assert self.state.counters.tolist() == [counted.num_routed, counted.num_missed, counted.num_missed_bytes]

    def _route(self, layer: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Logits on a grid, so that equal ones and exact distances of 0.25 occur; rows often agree."""
        noise = self._rng.standard_normal((num_rows, self._shape.num_experts))
        logits = (np.round((self._bias[layer] + noise) * 16) / 16).astype(np.float32)
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : self._shape.num_choices]
        return np.ascontiguousarray(ids).astype(np.int64), logits
