"""Which items of a fixed pool are free, and how many holders each used one has. Refuses to know what they index."""

import heapq


class OutOfItemsError(Exception):
    """No free item is left; the holder of cached ones must give some back. Never reaches a user."""


class RefAllocator:
    """Hands out the lowest free id of 0..num_items-1; an id is free again when its last holder released it."""

    def __init__(self, num_items: int) -> None:
        self.num_items = num_items
        self._free = list(range(num_items))
        self._holders = [0] * num_items

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self) -> int:
        """A free id, held once. Raises OutOfItemsError."""
        if not self._free:
            raise OutOfItemsError
        item = heapq.heappop(self._free)
        self._holders[item] = 1
        return item

    def retain(self, item: int) -> None:
        """One more holder of a used id."""
        assert self._holders[item] > 0, f"item {item} is free"
        self._holders[item] += 1

    def release(self, item: int) -> None:
        """One holder less; the last one frees the id."""
        assert self._holders[item] > 0, f"item {item} is free"
        self._holders[item] -= 1
        if self._holders[item] == 0:
            heapq.heappush(self._free, item)

    def num_holders(self, item: int) -> int:
        return self._holders[item]

    def check_integrity(self) -> None:
        """Every id is either free once and unheld, or held and not free."""
        free = set(self._free)
        assert len(free) == len(self._free), "an item is free twice"
        for item, holders in enumerate(self._holders):
            assert holders >= 0, f"item {item} has {holders} holders"
            assert (holders == 0) == (item in free), f"item {item} is free and held, or neither"
