"""Runs the routed experts of a layer: asks the slot cache where they lie, copies what is missing, computes.

A result's bits don't depend on slots, policy, hits or ring. Decode counts as use; prefill computes resident experts
where they are, fills slots that are still empty, and streams the others through the ring.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.experts.policy import make_policy
from runtime.experts.slot_cache import SlotCache
from runtime.experts.store import ExpertStore
from runtime.experts.streamed import GroupCompute, StreamedExperts


class ExpertCompute(GroupCompute, Protocol):
    """The op: `runtime.kernels.torch_ops.experts.ExpertCompute` is its specification."""

    def decode(self, pool: Tensor, slots: Tensor, hidden: Tensor) -> Tensor: ...


class RoutingRecorder(Protocol):
    """Keeps what steps route to: see `runtime.experts.trace_writer.TraceWriter`."""

    def begin_step(self) -> None: ...

    def decode(self, layer: int, expert_ids: NDArray[np.int64], router_logits: NDArray[np.float32]) -> None: ...

    def prefill(self, layer: int, experts: list[int]) -> None: ...

    def clear(self) -> None: ...


class SlotExperts:
    """The routed experts of all layers over one slot pool (uint8 [slots + ring slots, largest record's bytes])."""

    def __init__(self, store: ExpertStore, cache: SlotCache, pool: Tensor, computes: Sequence[ExpertCompute]) -> None:
        self.store = store
        self.cache = cache
        self.pool = pool
        self._computes = computes
        self.recorder: RoutingRecorder | None = None
        """Told of every routing while it is set."""
        # What each layer sees of the pool: the bytes of its own records.
        self._pools = [pool[:, : layout.record_bytes] for layout in store.layouts]
        self._streamed = StreamedExperts(store, cache, self._pools, computes)

    @classmethod
    def build(
        cls,
        store: ExpertStore,
        computes: Sequence[ExpertCompute],
        *,
        num_slots: int,
        num_choices: int,
        policy: str = "rule",
        max_rows: int = 1,
        num_ring_slots: int = 8,
        device: torch.device | str = "cpu",
    ) -> "SlotExperts":
        """Empty slots for a filled store; `computes` has an entry per layer.

        Raises UsageError for too few slots or an unknown policy.
        """
        cache = SlotCache(
            store.num_layers,
            store.num_experts,
            num_slots,
            make_policy(policy, store.num_layers, store.num_experts),
            num_choices=num_choices,
            max_rows=max_rows,
            num_ring_slots=num_ring_slots,
            record_bytes=[layout.record_bytes for layout in store.layouts],
        )
        slot_bytes = max(layout.record_bytes for layout in store.layouts)
        pool = torch.empty(num_slots + num_ring_slots, slot_bytes, dtype=torch.uint8, device=device)
        # Touched now, so that the process holds from the start what the budget says it will.
        pool.zero_()
        return cls(store, cache, pool, computes)

    def begin_step(self) -> None:
        """One decode step starts; to be called once, whatever the number of rows. Prefill has no steps."""
        self.cache.begin_step()
        if self.recorder is not None:
            self.recorder.begin_step()

    def clear(self) -> None:
        """Empty every slot: after a failure in the middle of a step nobody knows what lies in them."""
        self.cache.clear()
        if self.recorder is not None:
            self.recorder.clear()

    def run(self, layer: int, hidden: Tensor, expert_ids: Tensor, router_logits: Tensor, is_decode: bool) -> Tensor:
        """fp32 [N, k, hidden]: the unweighted output of every route.

        hidden [N, hidden_size], expert_ids int64 [N, k], router_logits [N, num_experts]. Decode calls follow a
        `begin_step`, one per layer in order.
        """
        hidden = hidden.float()
        if is_decode:
            return self._decode(layer, hidden, expert_ids, router_logits)
        rows, experts = self._streamed.run(layer, hidden, expert_ids)
        if self.recorder is not None:
            self.recorder.prefill(layer, experts)
        return rows

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

    def _decode(self, layer: int, hidden: Tensor, expert_ids: Tensor, router_logits: Tensor) -> Tensor:
        ids, logits = expert_ids.numpy(), router_logits.float().numpy()
        if self.recorder is not None:
            self.recorder.decode(layer, ids, logits)
        plan = self.cache.ensure(layer, ids, logits)
        self.cache.counters.note_from_disk(self._streamed.copy_all(layer, plan.missed))
        return self._computes[layer].decode(self._pools[layer], torch.from_numpy(plan.slots), hidden)
