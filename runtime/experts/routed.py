"""Runs the routed experts of a layer: asks the slot cache where they lie, copies what is missing, computes.

A result's bits don't depend on slots, policy, hits or ring. Decode counts as use; prefill computes resident experts
where they are, fills slots that are still empty, and streams the others through the ring.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.experts.policy import make_policy
from runtime.experts.slot_cache import EMPTY, SlotCache
from runtime.experts.store import ExpertStore


class ExpertCompute(Protocol):
    """The op: `runtime.kernels.torch_ops.experts.ExpertCompute` is its specification."""

    def decode(self, pool: Tensor, slots: Tensor, hidden: Tensor) -> Tensor: ...

    def groups(self, pool: Tensor, slots: list[int], routes: list[Tensor], hidden: Tensor, output: Tensor) -> None: ...


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
        return self._prefill(layer, hidden, expert_ids)

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
        for expert, slot in plan.missed:
            self._copy(layer, expert, slot)
        return self._computes[layer].decode(self._pools[layer], torch.from_numpy(plan.slots), hidden)

    def _prefill(self, layer: int, hidden: Tensor, expert_ids: Tensor) -> Tensor:
        num_tokens, num_choices = expert_ids.shape
        output = torch.empty(num_tokens * num_choices, hidden.shape[1], device=hidden.device)
        experts, routes = _routes_by_expert(expert_ids)
        for group, slots in self._groups(layer, experts):
            self._computes[layer].groups(self._pools[layer], slots, [routes[i] for i in group], hidden, output)
        return output.view(num_tokens, num_choices, -1)

    def _groups(self, layer: int, experts: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        """(positions in `experts`, their slots), each group ready to be computed before the next is asked for."""
        if self.recorder is not None:
            self.recorder.prefill(layer, experts)
        missing = [expert for expert in experts if self._slot(layer, expert) == EMPTY]
        for expert, slot in self.cache.place(layer, missing):
            self._copy(layer, expert, slot)
        slots = [self._slot(layer, expert) for expert in experts]
        resident = [i for i, slot in enumerate(slots) if slot != EMPTY]
        if resident:
            yield resident, [slots[i] for i in resident]
        streamed = [i for i, slot in enumerate(slots) if slot == EMPTY]
        ring = list(self.cache.ring)
        for start in range(0, len(streamed), len(ring)):
            group = streamed[start : start + len(ring)]
            for i, slot in zip(group, ring, strict=False):
                self._copy(layer, experts[i], slot)
            yield group, ring[: len(group)]

    def _slot(self, layer: int, expert: int) -> int:
        return int(self.cache.slots_of(layer, np.array(expert)))

    def _copy(self, layer: int, expert: int, slot: int) -> None:
        self._pools[layer][slot].copy_(self.store.record(layer, expert))


def _routes_by_expert(expert_ids: Tensor) -> tuple[list[int], list[Tensor]]:
    """Distinct experts, most routed first, and the flat route numbers of each in ascending order."""
    flat = expert_ids.flatten()
    order = torch.argsort(flat, stable=True)
    experts, counts = torch.unique_consecutive(flat[order], return_counts=True)
    by_count = torch.argsort(counts, descending=True, stable=True).tolist()
    routes = order.split(counts.tolist())
    return [int(experts[i]) for i in by_count], [routes[i] for i in by_count]
