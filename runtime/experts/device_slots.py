"""The slot cache of a device: slot map, owners, policy state and counters are tensors, and decode's *ensure* an op.

What the host needs it reads between steps: counters once per decode step, the map for prefill, which places experts in
empty slots as the slot cache on a CPU does.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from runtime.errors import UsageError
from runtime.experts.counters import SlotCounters
from runtime.experts.policy import POLICIES
from runtime.experts.slot_cache import EMPTY, check_slot_count
from runtime.kernels.torch_ops.slots import SlotState
from runtime.memory.residents import History

HISTORY_FIELDS = {"lru": ("clock", "stamps"), "rule": ("tok", "last_tok", "log2_count", "counted_tok")}
"""What each policy knows, by the names that its CPU twin has too."""


class DeviceSlots:
    """Slots 0 .. num_slots-1 hold experts, those after them are the ring.

    Raises UsageError for an unknown policy and where the slots can't hold what one decode call may route.
    """

    def __init__(
        self,
        num_layers: int,
        num_experts: int,
        num_slots: int,
        policy: str,
        *,
        num_choices: int,
        max_rows: int,
        num_ring_slots: int,
        device: torch.device | str,
    ) -> None:
        check_slot_count(num_slots, num_experts, num_choices, max_rows)
        if policy not in POLICIES:
            raise UsageError(f"there is no eviction policy '{policy}'; choose one of {', '.join(sorted(POLICIES))}")
        self.num_layers, self.num_experts, self.num_slots = num_layers, num_experts, num_slots
        self.num_ring_slots, self.policy = num_ring_slots, policy
        self._num_choices, self._max_rows = num_choices, max_rows
        self.counters = SlotCounters()
        self.state = SlotState.empty(num_layers, num_experts, num_slots, max_rows * num_choices, device)
        self._layer_share = -(-num_slots // num_layers)
        self._counted: Sequence[int] = (0, 0, 0)
        self._num_used = 0

    @property
    def num_used(self) -> int:
        """Slots that held an expert when the host last looked."""
        return self._num_used

    @property
    def ring(self) -> range:
        """Slot numbers of the ring."""
        return range(self.num_slots, self.num_slots + self.num_ring_slots)

    @property
    def fewest_slots(self) -> int:
        """What one decode call may route."""
        return min(self._max_rows * self._num_choices, self.num_experts)

    def resized(self, num_slots: int) -> "DeviceSlots":
        """So many slots, all empty, with what policy and counters know. This one must not be used any more."""
        other = DeviceSlots(
            self.num_layers,
            self.num_experts,
            num_slots,
            self.policy,
            num_choices=self._num_choices,
            max_rows=self._max_rows,
            num_ring_slots=self.num_ring_slots,
            device=self.state.owner.device,
        )
        other.state.take_history(self.state)
        other.counters, other._counted = self.counters, self._counted
        return other

    def note_step(self, counters: Sequence[int], num_from_disk: int = 0) -> None:
        """A decode step ended: `counters` are the state's own, read after it."""
        routed, missed, num_bytes = (now - before for now, before in zip(counters, self._counted, strict=True))
        self._counted = tuple(counters)
        self.counters.note_step(routed, missed, num_bytes, num_from_disk)
        # Misses fill empty slots before they evict.
        self._num_used = min(self.num_slots, self._num_used + missed)

    def slots_of(self, layer: int, experts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slot of each expert, or EMPTY. Waits for the device."""
        found: NDArray[np.int64] = self.state.slot_of[layer].cpu().numpy().astype(np.int64)[experts]
        return found

    def place(self, layer: int, experts: list[int]) -> list[tuple[int, int]]:
        """Put experts that have no slot into empty slots, a layer's share at most -> (expert, slot) of those placed."""
        num_free = self.num_slots - self._num_used
        if not num_free or not experts:
            return []
        num_resident = int((self.state.slot_of[layer] != EMPTY).sum())
        num_places = max(0, min(num_free, self._layer_share - num_resident, len(experts)))
        slots = list(range(self._num_used, self._num_used + num_places))
        self._assign([layer * self.num_experts + expert for expert in experts[:num_places]], slots)
        self._num_used += num_places
        return list(zip(experts[:num_places], slots, strict=True))

    def fill(self, owners: Sequence[int]) -> list[tuple[int, int, int]]:
        """Put experts that have no slot into empty slots, in order, as long as there are any -> (layer, expert, slot).

        An owner is layer * num_experts + expert. Waits for the device.
        """
        slot_of = self.state.slot_of.view(-1).cpu().numpy()
        missing = [owner for owner in owners if slot_of[owner] == EMPTY][: self.num_slots - self._num_used]
        slots = list(range(self._num_used, self._num_used + len(missing)))
        self._assign(missing, slots)
        self._num_used += len(missing)
        return [(*divmod(owner, self.num_experts), slot) for owner, slot in zip(missing, slots, strict=True)]

    def history(self) -> History:
        """A copy of what the policy knows. Waits for the device."""
        return {name: getattr(self.state, name).cpu().numpy().copy() for name in HISTORY_FIELDS[self.policy]}

    def take_history(self, history: History) -> None:
        """Raises KeyError where it is another policy's. To be called while every slot is empty."""
        for name in HISTORY_FIELDS[self.policy]:
            getattr(self.state, name).copy_(torch.from_numpy(history[name]))
        # What the kernel keeps by slot was read before.
        self.state.seen.fill_(EMPTY)
        self._wait()

    def clear(self) -> None:
        """Empty every slot. What the policy knows of experts stays."""
        self.state.slot_of.fill_(EMPTY)
        self.state.owner.fill_(EMPTY)
        self._num_used = 0
        self._wait()
        # What steps counted that nobody reads any more: their misses lie in no slot now.
        self._counted = tuple(self.state.counters.tolist())

    def reset(self) -> None:
        """As new, in place: slots, policy and counters."""
        self.state.reset()
        self.counters = SlotCounters()
        self._counted, self._num_used = (0, 0, 0), 0
        self._wait()

    def residents(self) -> list[tuple[int, int, int]]:
        """(layer, expert, slot) of every slot in use. Waits for the device."""
        owners = self.state.owner.tolist()
        return [(*divmod(owner, self.num_experts), slot) for slot, owner in enumerate(owners) if owner != EMPTY]

    def check_integrity(self) -> None:
        """Raise AssertionError unless slot map and owners are each other's inverse and slots fill from 0 upwards.

        Waits for steps that were launched: they move experts.
        """
        self._wait()
        residents = self.residents()
        # A step that was launched may have filled some that the host has not counted yet.
        num_new = int(self.state.counters[1]) - self._counted[1]
        num_used = min(self.num_slots, self._num_used + num_new)
        if [slot for _, _, slot in residents] != list(range(num_used)):
            raise AssertionError(f"slots in use are not 0 to {num_used - 1}")
        expected = np.full((self.num_layers, self.num_experts), EMPTY)
        for layer, expert, slot in residents:
            if expected[layer, expert] != EMPTY:
                raise AssertionError("two slots hold the same expert")
            expected[layer, expert] = slot
        if (expected != self.state.slot_of.cpu().numpy()).any():
            raise AssertionError("slot map and slot owners disagree")

    def _wait(self) -> None:
        """Steps may run on another stream than whoever empties the slots."""
        if self.state.owner.is_cuda:
            torch.cuda.synchronize(self.state.owner.device)

    def _assign(self, owners: list[int], slots: list[int]) -> None:
        device = self.state.owner.device
        owner_ids = torch.tensor(owners, dtype=torch.int64, device=device)
        slot_ids = torch.tensor(slots, dtype=torch.int64, device=device)
        self.state.slot_of.view(-1).index_copy_(0, owner_ids, slot_ids.int())
        self.state.owner.index_copy_(0, slot_ids, owner_ids.int())
