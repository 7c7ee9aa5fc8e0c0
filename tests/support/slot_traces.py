"""Device *ensure* beside the slot cache and its policies, over random routing."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch

from runtime.experts.policy import make_policy
from runtime.experts.slot_cache import SlotCache
from runtime.kernels.torch_ops.slots import SlotState

RECORD_BYTES = 100


@dataclass(frozen=True)
class SlotShape:
    num_layers: int
    num_experts: int
    num_choices: int
    num_slots: int
    most_rows: int = 4


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

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            # Now and then long pauses, for the cap of ages and the decay of counts.
            for _ in range(int(self._rng.choice([1, 70, 17_000], p=[0.97, 0.02, 0.01]))):
                self.cache.begin_step()
                self._ops.begin_step(self.state)
            num_rows = int(self._rng.integers(1, self._shape.most_rows + 1))
            for layer in range(self._shape.num_layers):
                self._ensure(layer, num_rows)
        self._compare_ends()

    def _ensure(self, layer: int, num_rows: int) -> None:
        ids, logits = self._route(layer, num_rows)
        was_resident = self.cache.slots_of(layer, ids) >= 0
        plan = self.cache.ensure(layer, ids, logits)
        slots, kinds = self._ops.ensure(
            self.state, self._policy, layer,
            torch.from_numpy(ids).to(self._device), torch.from_numpy(logits).to(self._device), RECORD_BYTES,
        )  # fmt: skip
        num_missed = int(self.state.num_missed)
        missed = zip(
            self.state.missed_experts[:num_missed].tolist(), self.state.missed_slots[:num_missed].tolist(), strict=True
        )
        assert tuple(missed) == plan.missed
        assert slots.tolist() == plan.slots.tolist()
        assert kinds.tolist() == (~was_resident).astype(int).tolist()

    def _route(self, layer: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Logits on a grid, so that equal ones and exact distances of 0.25 occur; rows often agree."""
        noise = self._rng.normal(size=(num_rows, self._shape.num_experts))
        logits = (np.round((self._bias[layer] + noise) * 16) / 16).astype(np.float32)
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : self._shape.num_choices]
        return np.ascontiguousarray(ids).astype(np.int64), logits

    def _compare_ends(self) -> None:
        owners = np.full(self._shape.num_slots, -1)
        slot_of = np.full((self._shape.num_layers, self._shape.num_experts), -1)
        for layer, expert, slot in self.cache.residents():
            owners[slot] = layer * self._shape.num_experts + expert
            slot_of[layer, expert] = slot
        assert self.state.owner.tolist() == owners.tolist()
        assert self.state.slot_of.tolist() == slot_of.tolist()
        counted = self.cache.counters
        assert self.state.counters.tolist() == [counted.num_routed, counted.num_missed, counted.num_missed_bytes]
