"""A bounded number of records in memory, in front of the disk. The one asked for longest ago makes room; before it go
those that were only read to pass through.

Owns the rows and what is on its way into them. Reads nothing itself: it begins reads and waits for them. One thread
uses it; the reads run beside.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

from torch import Tensor

from runtime.errors import HotslotError
from runtime.experts.pinning import page_aligned
from runtime.experts.record_reader import PendingRead

Key = tuple[int, int]
"""Layer and expert."""
BeginRead = Callable[[Key, Tensor], PendingRead]


class HostCache:
    """`num_records` rows uint8 [row_bytes] on pages of their own; `row_bytes` is a multiple of a page."""

    def __init__(self, num_records: int, row_bytes: int, begin_read: BeginRead) -> None:
        self.num_records = num_records
        self.memory = page_aligned(num_records, row_bytes)
        # Touched now, so that the process holds from the start what the budget says it will.
        self.memory.zero_()
        self._begin_read = begin_read
        self._row_of: OrderedDict[Key, int] = OrderedDict()
        """Asked for longest ago first."""
        self._reads: dict[Key, PendingRead] = {}
        self._passing: list[Key] = []
        self._free_rows = list(range(num_records))

    @property
    def num_used(self) -> int:
        """Records that are here or on their way."""
        return len(self._row_of)

    def has(self, key: Key) -> bool:
        """It is here or on its way."""
        return key in self._row_of

    def announce(self, keys: Sequence[Key], is_passing: bool = False) -> int:
        """Begin to read those of `keys` that are not here, as many as there are rows; returns how many are not.

        Where `is_passing` those make room first, once `let_pass` says that they have passed.
        """
        absent = [key for key in keys if key not in self._row_of]
        for key in keys:
            if key in self._row_of:
                self._row_of.move_to_end(key)
        for key in absent[: self.num_records]:
            self._begin(key)
        if is_passing:
            self._passing.extend(absent)
        return len(absent)

    def let_pass(self) -> None:
        """What was passing is not asked for again soon: it makes room before all others."""
        for key in self._passing:
            if key in self._row_of:
                self._row_of.move_to_end(key, last=False)
        self._passing.clear()

    def take(self, key: Key) -> Tensor:
        """The record's row, once it is there; it stays as it is until `num_records - 1` others were asked for, or until
        something is after a `let_pass`.

        Raises what the read raised; this record and all that are on their way are then as if never asked for.
        """
        if key not in self._row_of:
            self._begin(key)
        self._row_of.move_to_end(key)
        read = self._reads.pop(key, None)
        try:
            if read is not None:
                read.wait()
        except BaseException:
            self._free_rows.append(self._row_of.pop(key))
            self._forget_reads()
            raise
        return self.memory[self._row_of[key]]

    def close(self) -> None:
        """Wait for what is on its way: nothing is written into the rows any more."""
        self._forget_reads()

    def check_integrity(self) -> None:
        """Raise AssertionError unless every row is free or one record's, and only records that are kept are read."""
        rows = [*self._row_of.values(), *self._free_rows]
        if sorted(rows) != list(range(self.num_records)):
            raise AssertionError("a row of the host cache has no record or two")
        if not self._reads.keys() <= self._row_of.keys():
            raise AssertionError("a record is read that has no row")

    def _begin(self, key: Key) -> None:
        row = self._free_rows.pop() if self._free_rows else self._evict()
        try:
            self._reads[key] = self._begin_read(key, self.memory[row])
        except BaseException:
            self._free_rows.append(row)
            raise
        self._row_of[key] = row

    def _evict(self) -> int:
        key, row = self._row_of.popitem(last=False)
        self._end_read(key)
        return row

    def _forget_reads(self) -> None:
        """A disk that failed once may have failed them too: whoever asks again has them read again."""
        for key in list(self._reads):
            self._end_read(key)
            self._free_rows.append(self._row_of.pop(key))

    def _end_read(self, key: Key) -> None:
        """Bytes that nobody waits for any more still arrive in their row; whether they could be read is no matter."""
        read = self._reads.pop(key, None)
        if read is not None:
            with suppress(HotslotError):
                read.wait()
