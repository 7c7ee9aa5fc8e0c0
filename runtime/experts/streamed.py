"""Prefill's routed experts: resident ones are computed where they are, slots that are still empty are filled, and the
others stream through the ring. Nothing is evicted, and nothing counts as use.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.experts.slot_cache import EMPTY
from runtime.experts.store import ExpertStore

Item = TypeVar("Item")


class GroupCompute(Protocol):
    """The op: `runtime.kernels.torch_ops.experts.ExpertCompute` is its specification."""

    def groups(self, pool: Tensor, slots: list[int], routes: list[Tensor], hidden: Tensor, output: Tensor) -> None: ...


class PlacesExperts(Protocol):
    """The part of a slot cache that prefill needs."""

    @property
    def ring(self) -> range: ...

    def place(self, layer: int, experts: list[int]) -> list[tuple[int, int]]: ...

    def slots_of(self, layer: int, experts: NDArray[np.int64]) -> NDArray[np.int64]: ...


class StreamedExperts:
    """Over the pool of slots and ring that `cache` describes; `pools` holds what each layer sees of it."""

    def __init__(
        self, store: ExpertStore, cache: PlacesExperts, pools: Sequence[Tensor], computes: Sequence[GroupCompute]
    ) -> None:
        self._store, self._cache, self._pools, self._computes = store, cache, pools, computes

    def run(self, layer: int, hidden: Tensor, expert_ids: Tensor) -> tuple[Tensor, list[int]]:
        """fp32 [N, k, hidden] of every route, unweighted, and the distinct experts, most routed first."""
        num_tokens, num_choices = expert_ids.shape
        output = torch.empty(num_tokens * num_choices, hidden.shape[1], device=hidden.device)
        experts, routes = _routes_by_expert(expert_ids)
        for group, slots in self._groups(layer, experts):
            self._computes[layer].groups(self._pools[layer], slots, [routes[i] for i in group], hidden, output)
        return output.view(num_tokens, num_choices, -1), experts

    def copy(self, layer: int, expert: int, slot: int) -> None:
        """Bring one record into a slot, in the order of the current stream."""
        record = self._store.record(layer, expert)
        self._pools[layer][slot].copy_(record, non_blocking=self._store.records_stay)

    def copy_all(self, layer: int, missed: Sequence[tuple[int, int]]) -> int:
        """Bring the record of each (expert, slot), all told to the store first; returns how many came from the disk."""
        num_from_disk = self._store.announce(layer, [expert for expert, _ in missed])
        for expert, slot in missed:
            self.copy(layer, expert, slot)
        return num_from_disk

    def fill(self, placed: Sequence[tuple[int, int, int]]) -> None:
        """Bring the record of each (layer, expert, slot)."""
        for group in _groups_of(list(placed), len(self._cache.ring)):
            for layer, expert, _ in group:
                self._store.announce(layer, [expert])
            for layer, expert, slot in group:
                self.copy(layer, expert, slot)

    def _groups(self, layer: int, experts: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        """(positions in `experts`, their slots), each group ready to be computed before the next is asked for."""
        slots = self._slots(layer, experts)
        missing = [expert for expert, slot in zip(experts, slots, strict=True) if slot == EMPTY]
        ring = list(self._cache.ring)
        placed = dict(self._cache.place(layer, missing))
        for group in _groups_of(list(placed.items()), len(ring)):
            self.copy_all(layer, group)
        slots = [placed.get(expert, slot) for expert, slot in zip(experts, slots, strict=True)]
        resident = [i for i, slot in enumerate(slots) if slot != EMPTY]
        streamed = _groups_of([i for i, slot in enumerate(slots) if slot == EMPTY], len(ring))
        self._announce(layer, experts, streamed[:1])
        if resident:
            yield resident, [slots[i] for i in resident]
        for number, positions in enumerate(streamed):
            for i, slot in zip(positions, ring, strict=False):
                self.copy(layer, experts[i], slot)
            # Read from the disk while this group is computed.
            self._announce(layer, experts, streamed[number + 1 : number + 2])
            yield positions, ring[: len(positions)]

    def _announce(self, layer: int, experts: list[int], groups: list[list[int]]) -> None:
        for positions in groups:
            self._store.announce(layer, [experts[i] for i in positions])

    def _slots(self, layer: int, experts: list[int]) -> list[int]:
        found: list[int] = self._cache.slots_of(layer, np.array(experts)).tolist()
        return found


def _groups_of(items: list[Item], size: int) -> list[list[Item]]:
    """The items in order, `size` at a time."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def _routes_by_expert(expert_ids: Tensor) -> tuple[list[int], list[Tensor]]:
    """Distinct experts, most routed first, and the flat route numbers of each in ascending order."""
    flat = expert_ids.flatten()
    order = torch.argsort(flat, stable=True)
    distinct, counts = torch.unique_consecutive(flat[order], return_counts=True)
    experts, sizes = distinct.tolist(), counts.tolist()
    routes = order.split(sizes)
    by_count = sorted(range(len(experts)), key=lambda i: -sizes[i])
    return [experts[i] for i in by_count], [routes[i] for i in by_count]
