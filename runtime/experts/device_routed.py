"""Routed experts on a device: decode asks the host for nothing, prefill streams as everywhere.

Decode is router's ids -> ensure -> miss copy -> routes, all ops over fixed memory, so that a graph can hold them. At
the level `resident` copy and routes are one launch, in which each route is computed as soon as its expert is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from runtime.experts.branches import Branches
from runtime.experts.device_slots import DeviceSlots
from runtime.experts.missed_on_host import MissedOnHost
from runtime.experts.routed import RoutingRecorder
from runtime.experts.row_groups import RowGroups
from runtime.experts.store import ExpertStore, PinnedStore
from runtime.experts.streamed import CopyLane, GroupCompute, StreamedExperts
from runtime.kernels.ops import Ops
from runtime.kernels.torch_ops.experts import ExpertCompute
from runtime.record import RecordLayout

LEAST_GIVEN_BACK_BYTES = 64 << 20
"""Of slots, where memory ran out."""


@dataclass(frozen=True)
class RoutingBuffers:
    """What one decode step routed, kept by its own launches for a trace: ids int64 [L, R, k], logits fp32 [L, R, E]."""

    expert_ids: Tensor
    router_logits: Tensor


class DeviceExperts:
    """The routed experts of all layers over one slot pool, uint8 [slots + ring slots, largest record's bytes]."""

    def __init__(
        self, store: ExpertStore, cache: DeviceSlots, ops: Ops, device: torch.device, num_choices: int
    ) -> None:
        self.store, self.cache = store, cache
        self._missed = MissedOnHost(cache.state)
        self.recorder: RoutingRecorder | None = None
        """Told of every routing while it is set; `routing` must be kept then."""
        self.routing: RoutingBuffers | None = None
        self._ops, self._num_choices = ops, num_choices
        self._device = device
        self._lane: CopyLane | None = None
        self._num_from_disk = 0
        """In the step that runs."""
        self._slot_bytes = max(layout.record_bytes for layout in store.layouts)
        computes = {layout: self._group_compute(layout) for layout in set(store.layouts)}
        self._computes = [computes[layout] for layout in store.layouts]
        self._allocate()

    def _group_compute(self, layout: RecordLayout) -> GroupCompute:
        matrices = ExpertCompute(layout, self._device)
        if self._device.type != "cuda" or not RowGroups.takes(layout):
            return matrices
        return RowGroups(layout, self._ops.expert_rows, matrices)

    def _allocate(self) -> None:
        num_slots = self.cache.num_slots + self.cache.num_ring_slots
        self.pool = torch.zeros(num_slots, self._slot_bytes, dtype=torch.uint8, device=self._device)
        self._pools = [self.pool[:, : layout.record_bytes] for layout in self.store.layouts]
        self._streamed = StreamedExperts(self.store, self.cache, self._pools, self._computes, self._lane)

    def copy_beside(self, lane: CopyLane | None) -> None:
        """Prefill's copies run on `lane` from now on; None: between the products."""
        self._lane = lane
        self._streamed = StreamedExperts(self.store, self.cache, self._pools, self._computes, lane)

    def fewer_slots(self) -> int:
        """How many to keep where memory ran out: nine in ten, and no less than decode needs."""
        num_given_back = max(self.cache.num_slots // 10, LEAST_GIVEN_BACK_BYTES // self._slot_bytes)
        return min(self.cache.num_slots, max(self.cache.fewest_slots, self.cache.num_slots - num_given_back))

    def resize(self, num_slots: int) -> None:
        """So many slots instead, all empty. Decode steps must be built again."""
        # Tensors made in inference mode could not be changed outside of it.
        with torch.inference_mode(False):
            self.cache = self.cache.resized(num_slots)
            if self._lane is not None:
                self._lane.drain()
            # The old memory goes first: there may not be room for both.
            self.pool, self._pools = torch.empty(0, dtype=torch.uint8), []
            del self._streamed
            self._allocate()
            if self._lane is not None:
                # The new ring is cleared before it is filled.
                self._lane.computed(0)
                self._lane.computed(1)
        if self.recorder is not None:
            self.recorder.clear()

    def begin_step(self) -> None:
        """Launched first in every decode step."""
        self._ops.begin_step(self.cache.state)

    def run_rows(
        self, layer: int, hidden: Tensor, expert_ids: Tensor, router_logits: Tensor, branches: Branches
    ) -> Tensor:
        """fp32 [R, k, hidden]: the unweighted output of every route. hidden fp32 [R, hidden], expert_ids int64 [R, k],
        router_logits fp32 [R, E]. Never waits for the device, unless records come from the disk."""
        ops, state, layout = self._ops, self.cache.state, self.store.layouts[layer]
        if self.routing is not None:
            self.routing.expert_ids[layer, : len(expert_ids)].copy_(expert_ids)
            self.routing.router_logits[layer, : len(expert_ids)].copy_(router_logits)
        slots, arrivals = ops.ensure(state, self.cache.policy, layer, expert_ids, router_logits, layout.record_bytes)
        pool = self._pools[layer]
        rows: Tensor
        # What lies on the disk is not read by a kernel, so there is no copy to compute beside.
        if branches.is_by_arrival and isinstance(self.store, PinnedStore):
            rows = ops.expert_rows_by_arrival(layout, state, self.store.bank(layer), pool, arrivals, hidden)
        else:
            self._copy_missed(layer, branches)
            rows = ops.expert_rows(layout, pool, slots, hidden)
        return rows

    def _copy_missed(self, layer: int, branches: Branches) -> None:
        """What *ensure* found missing. A kernel reads it from host memory; where it may be on the disk, the host must
        know what it is, and waits for the device in every layer."""
        state = self.cache.state
        if isinstance(self.store, PinnedStore):
            self._ops.copy_missed(state, self.store.bank(layer), self._pools[layer])
            return
        self._missed.take(state)
        branches.call_host(partial(self._bring_missed, layer))

    def _bring_missed(self, layer: int) -> None:
        # The wait ends the last layer's copies, too: their records may make room now.
        missed = self._missed.wait()
        self._num_from_disk += self._streamed.copy_all(layer, missed, waits=False)

    def run(self, layer: int, hidden: Tensor, expert_ids: Tensor, router_logits: Tensor, is_decode: bool) -> Tensor:
        """The same for a prefill chunk of N tokens, fp32 [N, k, hidden]."""
        assert not is_decode, "a decode step runs `run_rows`"
        rows, experts = self._streamed.run(layer, hidden.float(), expert_ids)
        if self.recorder is not None:
            self.recorder.prefill(layer, experts)
        return rows

    def ended_step(self, num_rows: int) -> None:
        """Read what the device counted, and recorded, in the step that just ended; waits for it."""
        self.cache.note_step(self.cache.state.counters.tolist(), self._num_from_disk)
        self._num_from_disk = 0
        if self.recorder is None or self.routing is None:
            return
        self.recorder.begin_step()
        ids = self.routing.expert_ids[:, :num_rows].cpu().numpy()
        logits = self.routing.router_logits[:, :num_rows].cpu().numpy().astype(np.float32)
        for layer in range(self.cache.num_layers):
            self.recorder.decode(layer, ids[layer], logits[layer])

    def keep_routing(self, max_rows: int) -> None:
        """Decode steps launched from now on leave what they route in `routing`."""
        num_layers, num_experts = self.cache.num_layers, self.cache.num_experts
        self.routing = RoutingBuffers(
            torch.zeros(num_layers, max_rows, self._num_choices, dtype=torch.int64, device=self.pool.device),
            torch.zeros(num_layers, max_rows, num_experts, device=self.pool.device),
        )

    def clear(self) -> None:
        """Empty every slot: after a failure in the middle of a step nobody knows what lies in them."""
        self.cache.clear()
        if self.recorder is not None:
            self.recorder.clear()

    def fill(self, owners: Sequence[int]) -> int:
        """Bring experts into empty slots, in order, as long as there are any -> how many came.

        To be called between steps. An owner is layer * num_experts + expert.
        """
        placed = self.cache.fill(owners)
        self._streamed.fill(placed)
        return len(placed)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the slot map is sound and every slot holds the bytes of its expert."""
        self.cache.check_integrity()
        for layer, expert, slot in self.cache.residents():
            if not torch.equal(self._pools[layer][slot].cpu(), self.store.record(layer, expert)):
                raise AssertionError(f"slot {slot} does not hold the record of layer {layer}, expert {expert}")
