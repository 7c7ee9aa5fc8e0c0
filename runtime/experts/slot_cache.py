"""Owns which expert lies in which slot: one pool of slots for all layers, and behind them the ring of prefill.

Decode's *ensure* gives every routed expert a slot: empty slots first, then the policy's lowest score, ties to the
lowest slot; experts routed in the call are pinned. Misses are served in ascending expert order. Prefill never evicts:
it may only place experts in slots that are still empty, and an equal share of slots per layer at most, so that the
first layers don't take them all. The slot cache moves no bytes; `SlotExperts` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.errors import UsageError
from runtime.experts.counters import SlotCounters
from runtime.experts.policy import EvictionPolicy, take_history
from runtime.memory.residents import History

EMPTY = -1


@dataclass(frozen=True)
class EnsurePlan:
    """Where a decode call finds its experts, and which records must be copied first."""

    slots: NDArray[np.int64]
    """[rows, k]"""
    missed: tuple[tuple[int, int], ...]
    """(expert, slot) of every miss."""


class SlotCache:
    """Slots 0 .. num_slots-1 hold experts; num_slots .. num_slots+num_ring_slots-1 are the ring and hold none for long.

    Raises UsageError where the slots can't hold what one decode call of `max_rows` rows may route.
    """

    def __init__(
        self,
        num_layers: int,
        num_experts: int,
        num_slots: int,
        policy: EvictionPolicy,
        *,
        num_choices: int,
        max_rows: int = 1,
        num_ring_slots: int = 1,
        record_bytes: Sequence[int] = (),
    ) -> None:
        check_slot_count(num_slots, num_experts, num_choices, max_rows)
        self.num_layers, self.num_experts, self.num_slots = num_layers, num_experts, num_slots
        self.num_ring_slots = num_ring_slots
        self.policy = policy
        self.counters = SlotCounters()
        self._record_bytes = record_bytes or [0] * num_layers
        self._slot_of = np.full((num_layers, num_experts), EMPTY, np.int64)
        self._owner = np.full(num_slots, EMPTY, np.int64)
        self._num_used = 0
        self._layer_share = -(-num_slots // num_layers)

    @property
    def num_used(self) -> int:
        """Slots that hold an expert."""
        return self._num_used

    @property
    def ring(self) -> range:
        """Slot numbers of the ring."""
        return range(self.num_slots, self.num_slots + self.num_ring_slots)

    def begin_step(self) -> None:
        """One decode step starts; to be called once, whatever the number of rows."""
        self.policy.begin_step()
        self.counters.begin_step()

    def ensure(self, layer: int, expert_ids: NDArray[np.int64], router_logits: NDArray[np.float32]) -> EnsurePlan:
        """Give every routed expert a slot. expert_ids int64 [rows, k], router_logits fp32 [rows, num_experts]."""
        routed = np.unique(expert_ids)
        self.policy.note_use(layer, routed, expert_ids, router_logits)
        slot_of = self._slot_of[layer]
        slots = slot_of[routed]
        missed_experts = routed[slots == EMPTY].tolist()
        missed: tuple[tuple[int, int], ...] = ()
        if missed_experts:
            missed = tuple(zip(missed_experts, self._free_slots(layer, slots, len(missed_experts)), strict=True))
            for expert, slot in missed:
                self._assign(layer, expert, slot)
        self.counters.note(len(routed), len(missed), self._record_bytes[layer])
        return EnsurePlan(slot_of[expert_ids], missed)

    def slots_of(self, layer: int, experts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slot of each expert, or EMPTY."""
        return self._slot_of[layer][experts]

    def place(self, layer: int, experts: list[int]) -> list[tuple[int, int]]:
        """Put experts that have no slot into empty slots, first come first served -> (expert, slot) of those placed."""
        num_resident = int((self._slot_of[layer] != EMPTY).sum())
        num_places = max(0, min(self.num_slots - self._num_used, self._layer_share - num_resident))
        placed = list(zip(experts[:num_places], range(self._num_used, self.num_slots), strict=False))
        for expert, slot in placed:
            self._assign(layer, expert, slot)
        return placed

    def fill(self, owners: Sequence[int]) -> list[tuple[int, int, int]]:
        """Put experts that have no slot into empty slots, in order, as long as there are any -> (layer, expert, slot).

        An owner is layer * num_experts + expert.
        """
        missing = [owner for owner in owners if self._slot_of.reshape(-1)[owner] == EMPTY]
        placed = [
            (*divmod(owner, self.num_experts), slot)
            for owner, slot in zip(missing, range(self._num_used, self.num_slots), strict=False)
        ]
        for layer, expert, slot in placed:
            self._assign(layer, expert, slot)
        return placed

    def history(self) -> History:
        """A copy of what the policy knows."""
        return {name: values.copy() for name, values in self.policy.history().items()}

    def take_history(self, history: History) -> None:
        """Raises KeyError where it is another policy's."""
        take_history(self.policy, history)

    def clear(self) -> None:
        """Empty every slot. What the policy knows of experts stays."""
        self._slot_of.fill(EMPTY)
        self._owner.fill(EMPTY)
        self._num_used = 0

    def residents(self) -> list[tuple[int, int, int]]:
        """(layer, expert, slot) of every slot in use."""
        return [(*divmod(int(self._owner[slot]), self.num_experts), slot) for slot in range(self._num_used)]

    def check_integrity(self) -> None:
        """Raise AssertionError unless slot map and owners are each other's inverse and slots fill from 0 upwards."""
        used = self._owner[: self._num_used]
        if (used == EMPTY).any() or (self._owner[self._num_used :] != EMPTY).any():
            raise AssertionError(f"slots in use are not 0 to {self._num_used - 1}")
        if len(np.unique(used)) != len(used):
            raise AssertionError("two slots hold the same expert")
        if (used >= self.num_layers * self.num_experts).any():
            raise AssertionError("a slot holds an expert that does not exist")
        expected = np.full(self.num_layers * self.num_experts, EMPTY, np.int64)
        expected[used] = np.arange(self._num_used)
        if (expected != self._slot_of.reshape(-1)).any():
            raise AssertionError("slot map and slot owners disagree")

    def _free_slots(self, layer: int, pinned: NDArray[np.int64], num_wanted: int) -> list[int]:
        """Slots for the misses, in order; `pinned` are the slots of this call's hits (and EMPTY for its misses)."""
        num_empty = min(num_wanted, self.num_slots - self._num_used)
        slots = list(range(self._num_used, self._num_used + num_empty))
        if num_empty == num_wanted:
            return slots
        taken = np.iinfo(np.int64).max
        scores = self.policy.scores(layer, self._owner)
        scores[self._num_used :] = taken
        scores[pinned[pinned != EMPTY]] = taken
        for _ in range(num_wanted - num_empty):
            victim = int(scores.argmin())
            scores[victim] = taken
            slots.append(victim)
        return slots

    def _assign(self, layer: int, expert: int, slot: int) -> None:
        evicted = self._owner[slot]
        if evicted == EMPTY:
            self._num_used += 1
        else:
            self._slot_of.reshape(-1)[evicted] = EMPTY
        self._owner[slot] = layer * self.num_experts + expert
        self._slot_of[layer, expert] = slot


def check_slot_count(num_slots: int, num_experts: int, num_choices: int, max_rows: int) -> None:
    """A decode call must find room for every expert it routes: rows x top-k, or all experts of a layer if fewer."""
    fewest = min(max_rows * num_choices, num_experts)
    if num_slots < fewest:
        raise UsageError(
            f"{num_slots} expert slots are too few: {max_rows} rows of {num_choices} experts each need at least "
            f"{fewest}; set --slots {fewest} or more"
        )
