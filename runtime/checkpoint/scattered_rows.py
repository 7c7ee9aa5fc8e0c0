"""Rows of a matrix that stays on the disk, a few at a time. Reads into memory of its own and maps nothing: the system
may map megabytes around a row, and they would count as held."""

import os
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from runtime.checkpoint.files import TensorEntry
from runtime.errors import CheckpointError


class ScatteredRows:
    """A matrix of bytes in shards, each a tensor [rows, ...] of a file; row numbers run over all of them."""

    def __init__(self, shards: Sequence[TensorEntry]) -> None:
        """Raises CheckpointError for a file that can't be opened."""
        self._shards = shards
        self._first_rows = [0, *accumulate(shard.shape[0] for shard in shards)]
        self.row_bytes = (shards[0].end - shards[0].begin) // max(1, shards[0].shape[0])
        self.num_bytes = sum(shard.end - shard.begin for shard in shards)
        self._descriptors: dict[Path, int] = {}
        weakref.finalize(self, _close_all, self._descriptors)
        for file in {shard.file for shard in shards}:
            self._descriptors[file] = _open(file)

    def announce(self, rows: Sequence[int]) -> None:
        """Have the system begin to read these rows, all at once. Waits for nothing."""
        if hasattr(os, "posix_fadvise"):
            for descriptor, offset in map(self._place, rows):
                os.posix_fadvise(descriptor, offset, self.row_bytes, os.POSIX_FADV_WILLNEED)

    def read(self, rows: Sequence[int]) -> Tensor:
        """uint8 [len(rows), row_bytes]. Raises CheckpointError naming the file that can't be read."""
        values = torch.empty(len(rows), self.row_bytes, dtype=torch.uint8)
        target = values.numpy()
        for number, row in enumerate(rows):
            descriptor, offset = self._place(row)
            try:
                num_read = os.preadv(descriptor, [target[number].data], offset)
            except OSError as error:
                raise self._unreadable(row, str(error.strerror)) from error
            if num_read != self.row_bytes:
                raise self._unreadable(row, "it has become shorter")
        return values

    def _place(self, row: int) -> tuple[int, int]:
        """Descriptor and offset of a row."""
        number = bisect_right(self._first_rows, row) - 1
        shard = self._shards[number]
        return self._descriptors[shard.file], shard.begin + (row - self._first_rows[number]) * self.row_bytes

    def _unreadable(self, row: int, reason: str) -> CheckpointError:
        shard = self._shards[bisect_right(self._first_rows, row) - 1]
        return CheckpointError(f"{shard.file}: tensor {shard.name} can't be read ({reason}); check the disk")


def _open(file: Path) -> int:
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"{file}: can't be read ({error.strerror}); check its permissions") from error
    if hasattr(os, "posix_fadvise"):
        # Nothing beside a row is worth reading.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    return descriptor


def _close_all(descriptors: dict[Path, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)
