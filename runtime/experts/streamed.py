"""Prefill's routed experts: resident ones are computed where they are, slots that are still empty are filled, and the
others stream through the ring. Nothing is evicted, and nothing counts as use.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.experts.slot_cache import EMPTY
from runtime.experts.store import ExpertStore

Item = TypeVar("Item")
Group = tuple[list[int], list[int]]
"""Positions in a layer's list of routed experts, and the slots in which these lie."""


class GroupCompute(Protocol):
    """The op: `runtime.kernels.torch_ops.experts.ExpertCompute` is its specification."""

    def groups(self, pool: Tensor, slots: list[int], routes: list[Tensor], hidden: Tensor, output: Tensor) -> None: ...


class PlacesExperts(Protocol):
    """The part of a slot cache that prefill needs."""

    @property
    def ring(self) -> range: ...

    def place(self, layer: int, experts: list[int]) -> list[tuple[int, int]]: ...

    def slots_of(self, layer: int, experts: NDArray[np.int64]) -> NDArray[np.int64]: ...


class CopyLane(Protocol):
    """Copies beside the present stream: one half of the ring is filled while the other is computed."""

    def copying(self, half: int) -> AbstractContextManager[None]:
        """Copies launched inside fill this half, once what it held has been computed."""
        ...

    def wait(self, half: int) -> None:
        """What is launched next finds this half filled."""
        ...

    def computed(self, half: int) -> None:
        """All that reads this half has been launched."""
        ...

    def drain(self) -> None:
        """Return when no copy is under way."""
        ...


class StreamedExperts:
    """Over the pool of slots and ring that `cache` describes; `pools` holds what each layer sees of it.

    Without `lane` copies and products take turns.
    """

    def __init__(
        self,
        store: ExpertStore,
        cache: PlacesExperts,
        pools: Sequence[Tensor],
        computes: Sequence[GroupCompute],
        lane: CopyLane | None = None,
    ) -> None:
        self._store, self._cache, self._pools, self._computes = store, cache, pools, computes
        # A record that does not stay may be gone before a copy beside the stream has read it.
        self._lane = lane if store.records_stay and len(cache.ring) > 1 else None

    def run(self, layer: int, hidden: Tensor, expert_ids: Tensor) -> tuple[Tensor, list[int]]:
        """fp32 [N, k, hidden] of every route, unweighted, and the distinct experts, most routed first."""
        num_tokens, num_choices = expert_ids.shape
        output = torch.empty(num_tokens * num_choices, hidden.shape[1], device=hidden.device)
        experts, routes = _routes_by_expert(expert_ids)
        for group, slots in self._groups(layer, experts):
            self._computes[layer].groups(self._pools[layer], slots, [routes[i] for i in group], hidden, output)
        return output.view(num_tokens, num_choices, -1), experts

    def copy(self, layer: int, expert: int, slot: int, waits: bool = True) -> None:
        """Bring one record into a slot, in the order of the current stream. `waits` for one that does not stay."""
        record = self._store.record(layer, expert)
        self._pools[layer][slot].copy_(record, non_blocking=self._store.records_stay or not waits)

    def copy_all(self, layer: int, missed: Sequence[tuple[int, int]], waits: bool = True) -> int:
        """Bring the record of each (expert, slot), all told to the store first; returns how many came from the disk.

        Without `waits` the copies may still be under way, and the stream must be waited for before records are asked
        for again; a store keeps as many as are missed at once.
        """
        num_from_disk = self._store.announce(layer, [expert for expert, _ in missed])
        for expert, slot in missed:
            self.copy(layer, expert, slot, waits)
        return num_from_disk

    def fill(self, placed: Sequence[tuple[int, int, int]]) -> None:
        """Bring the record of each (layer, expert, slot)."""
        for group in _groups_of(list(placed), len(self._cache.ring)):
            for layer, expert, _ in group:
                self._store.announce(layer, [expert])
            for layer, expert, slot in group:
                self.copy(layer, expert, slot)

    def _groups(self, layer: int, experts: list[int]) -> Iterator[Group]:
        """Groups, each ready to be computed before the next is asked for."""
        slots = self._slots(layer, experts)
        missing = [expert for expert, slot in zip(experts, slots, strict=True) if slot == EMPTY]
        ring = list(self._cache.ring)
        placed = dict(self._cache.place(layer, missing))
        for group in _groups_of(list(placed.items()), len(ring)):
            self.copy_all(layer, group)
        slots = [placed.get(expert, slot) for expert, slot in zip(experts, slots, strict=True)]
        resident = [i for i, slot in enumerate(slots) if slot != EMPTY]
        streamed = [i for i, slot in enumerate(slots) if slot == EMPTY]
        # Before those that come from the disk make them give way.
        streamed.sort(key=lambda i: not self._store.is_in_memory(layer, experts[i]))
        groups = self._in_turn if self._lane is None else self._ahead
        stream = groups(layer, experts, streamed)
        # The first group is asked for, or under way, while the residents are computed.
        next(stream)
        if resident:
            yield resident, [slots[i] for i in resident]
        yield from stream

    def _in_turn(self, layer: int, experts: list[int], streamed: list[int]) -> Iterator[Group]:
        """The groups that go through the ring, each copied before it is computed; an empty one first."""
        ring = list(self._cache.ring)
        groups = _groups_of(streamed, len(ring))
        self._announce(layer, experts, groups[:1])
        yield [], []
        for number, positions in enumerate(groups):
            for i, slot in zip(positions, ring, strict=False):
                self.copy(layer, experts[i], slot)
            # Read from the disk while this group is computed.
            self._announce(layer, experts, groups[number + 1 : number + 2])
            yield positions, ring[: len(positions)]

    def _ahead(self, layer: int, experts: list[int], streamed: list[int]) -> Iterator[Group]:
        """The same, each copied into one half of the ring while the one before it is computed in the other."""
        lane, ring = self._lane, list(self._cache.ring)
        assert lane is not None
        size = len(ring) // 2
        halves, groups = (ring[:size], ring[size : 2 * size]), _groups_of(streamed, size)

        def begin(number: int) -> None:
            if number < len(groups):
                with lane.copying(number % 2):
                    for i, slot in zip(groups[number], halves[number % 2], strict=False):
                        self.copy(layer, experts[i], slot)

        begin(0)
        yield [], []
        for number, positions in enumerate(groups):
            begin(number + 1)
            lane.wait(number % 2)
            yield positions, halves[number % 2][: len(positions)]
            lane.computed(number % 2)

    def _announce(self, layer: int, experts: list[int], groups: list[list[int]]) -> None:
        for positions in groups:
            self._store.announce(layer, [experts[i] for i in positions], is_passing=True)

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
