"""The record file: all records of a model, each an aligned run of bytes, written once and read past the page cache.

A header page names the weights that the file holds; the records follow, layer after layer. The file comes into being
by one rename of a file that is whole and on the disk, so that nothing partial is ever read. A file of other weights or
of another size is none.
"""

import os
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from runtime.checkpoint.record_place import RecordPlace
from runtime.errors import EngineError
from runtime.experts.packing import check_layout, pack_record
from runtime.experts.pinning import page_aligned
from runtime.experts.store import ProgressCallback, ReadsExperts, experts_ahead
from runtime.record import DISK_BLOCK_BYTES, RecordLayout, whole_blocks

_NUM_READERS = 8
"""Reads in flight: what a disk wants to be asked for at once to be fast."""
_PIECE_BYTES = 1 << 20
"""Of a record, what one of them reads: a layer misses only a few records, which must keep a disk busy."""
_RELEASED_BYTES = 64 << 20
"""Of checkpoint files' pages, what is held at most while records are made of them."""
_KEPT_BYTES = 256 << 20
"""Of a file that grows, what a process that is killed may lose: so often all of it is brought onto the disk."""
_DIRECT = getattr(os, "O_DIRECT", 0)


@dataclass(frozen=True)
class RecordFileLayout:
    """Where each record lies. `starts` and `strides` are bytes, by layer."""

    header: bytes
    starts: tuple[int, ...]
    strides: tuple[int, ...]
    num_experts: int
    file_bytes: int

    @classmethod
    def build(cls, key: str, layouts: tuple[RecordLayout, ...], num_experts: int) -> "RecordFileLayout":
        """For the weights that `key` names."""
        strides = tuple(whole_blocks(layout.record_bytes) for layout in layouts)
        starts, end = [], DISK_BLOCK_BYTES
        for stride in strides:
            starts.append(end)
            end += stride * num_experts
        header = f"hotslot-records 2 {key}\n".encode().ljust(DISK_BLOCK_BYTES, b"\0")
        return cls(header, tuple(starts), strides, num_experts, end)

    def offset(self, layer: int, expert: int) -> int:
        """Of a record, from the file's start."""
        return self.starts[layer] + expert * self.strides[layer]

    def end_of(self, num_records: int) -> int:
        """Of so many records, in the order of the file; from the file's start."""
        layer, expert = divmod(num_records, self.num_experts)
        return self.file_bytes if layer == len(self.starts) else self.offset(layer, expert)


class RecordFile:
    """A whole record file, open for reading by several threads of its own."""

    source = "the record file"

    def __init__(self, path: Path, layout: RecordFileLayout) -> None:
        """Raises OSError; see `is_whole` for whether it may be opened."""
        self._path, self._layout = path, layout
        self.num_read_bytes = 0
        self._descriptor, self.is_direct = _open(path, os.O_RDONLY)
        self._readers = ThreadPoolExecutor(_NUM_READERS, "record-reader")
        weakref.finalize(self, _close, self._descriptor, self._readers)

    def begin(self, layer: int, expert: int, row: Tensor) -> "_FileRead":
        """Start to fill `row` with a record and what pads it. Threads read without Python's lock."""
        stride = self._layout.strides[layer]
        self.num_read_bytes += stride
        target, offset = row.numpy().data[:stride], self._layout.offset(layer, expert)
        pieces = range(0, stride, _PIECE_BYTES)
        return _FileRead(
            tuple(
                self._readers.submit(_read, self._descriptor, target[at : at + _PIECE_BYTES], offset + at, self._path)
                for at in pieces
            )
        )


@dataclass(frozen=True)
class _FileRead:
    pieces: "tuple[Future[None], ...]"

    def wait(self) -> None:
        # All of them: nothing is written into the row after a read that failed was waited for.
        errors = [piece.exception() for piece in self.pieces]
        for error in errors:
            if error is not None:
                raise error


def is_whole(path: Path, layout: RecordFileLayout) -> bool:
    """Whether the file there holds these records, all of them."""
    try:
        with path.open("rb") as file:
            return file.read(DISK_BLOCK_BYTES) == layout.header and path.stat().st_size == layout.file_bytes
    except FileNotFoundError:
        return False


def write_record_file(
    place: RecordPlace,
    layout: RecordFileLayout,
    expert_source: ReadsExperts,
    layouts: tuple[RecordLayout, ...],
    progress: ProgressCallback,
) -> None:
    """Make the file from the checkpoint, reading every expert once; the caller holds `place.lock`.

    Goes on where a process that was killed ended. Raises OSError where the disk refuses, CheckpointError for an expert
    that can't be used, and whatever `progress` raises to cancel; nothing is left then.
    """
    try:
        with _growing(place.partial) as descriptor:
            growing = _GrowingFile(descriptor, layout)
            _write_records(growing, expert_source, layouts, progress)
            growing.finish()
        place.partial.replace(place.path)
        _sync_folder(place.path.parent)
    except BaseException:
        place.partial.unlink(missing_ok=True)
        raise
    place.remove_others()


def _write_records(
    growing: "_GrowingFile",
    expert_source: ReadsExperts,
    layouts: tuple[RecordLayout, ...],
    progress: ProgressCallback,
) -> None:
    layout = growing.layout
    total = layout.file_bytes - DISK_BLOCK_BYTES
    num_kept, held_bytes = growing.num_records, 0
    row = page_aligned(1, max(layout.strides))[0]
    row.zero_()
    progress(growing.end - DISK_BLOCK_BYTES, total)
    for layer, record_layout in enumerate(layouts):
        check_layout(record_layout)
        num_ahead = experts_ahead(record_layout)
        for expert in range(max(0, num_kept - layer * layout.num_experts), layout.num_experts):
            if expert + num_ahead < layout.num_experts:
                expert_source.announce(layer, expert + num_ahead)
            pack_record(expert_source.expert(layer, expert), record_layout, row[: record_layout.record_bytes])
            growing.append(row.numpy().data[: layout.strides[layer]])
            held_bytes += layout.strides[layer]
            if held_bytes >= _RELEASED_BYTES or expert == layout.num_experts - 1:
                expert_source.release_pages()
                held_bytes = 0
            progress(growing.end - DISK_BLOCK_BYTES, total)


class _GrowingFile:
    """A record file that is not whole yet. Its first block says how many records are on the disk already, so that
    whoever is killed loses little; such a block is no record file's."""

    def __init__(self, descriptor: int, layout: RecordFileLayout) -> None:
        self.layout = layout
        self._descriptor = descriptor
        self._block = page_aligned(1, DISK_BLOCK_BYTES)[0]
        self.num_records = self._kept_records()
        self.end = layout.end_of(self.num_records)
        """Bytes so far, the first block included."""
        self._unsynced_bytes = 0

    def append(self, record: memoryview) -> None:
        """The next record, and what pads it to whole blocks."""
        _write(self._descriptor, record, self.end)
        self.end += len(record)
        self.num_records += 1
        self._unsynced_bytes += len(record)
        if self._unsynced_bytes >= _KEPT_BYTES:
            os.fsync(self._descriptor)
            self._write_block(self._mark(self.num_records))
            self._unsynced_bytes = 0

    def finish(self) -> None:
        """All records are there: from now on it is a record file."""
        assert self.end == self.layout.file_bytes, "records are missing"
        self._write_block(self.layout.header)
        os.fsync(self._descriptor)

    def _kept_records(self) -> int:
        """Of a process that was killed in the middle; else the file begins anew."""
        num_read = os.preadv(self._descriptor, [self._block.numpy().data], 0)
        start, _, number = bytes(self._block[:num_read].tolist()).rstrip(b"\0\n").rpartition(b" ")
        num_records = int(number) if number.isdigit() else 0
        if num_read == DISK_BLOCK_BYTES and self._mark(num_records).startswith(start + b" ") and num_records:
            return num_records
        os.ftruncate(self._descriptor, 0)
        return 0

    def _mark(self, num_records: int) -> bytes:
        start = self.layout.header.rstrip(b"\0\n").replace(b"hotslot-records", b"hotslot-growing")
        return b"%s %d\n" % (start, num_records)

    def _write_block(self, content: bytes) -> None:
        self._block.zero_()
        self._block[: len(content)] = self._block.new_tensor(list(content))
        _write(self._descriptor, self._block.numpy().data, 0)


@contextmanager
def _growing(path: Path) -> Iterator[int]:
    """Descriptor of a file that may be there already."""
    descriptor, _ = _open(path, os.O_RDWR | os.O_CREAT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> tuple[int, bool]:
    """A descriptor past the page cache where the file system knows that, and whether it does."""
    with suppress(OSError):
        if _DIRECT:
            return os.open(path, flags | _DIRECT, 0o644), True
    return os.open(path, flags, 0o644), False


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        num_bytes = os.pwrite(descriptor, data, offset)
        data, offset = data[num_bytes:], offset + num_bytes


def _read(descriptor: int, target: memoryview, offset: int, path: Path) -> None:
    end = offset + len(target)
    try:
        while target:
            num_bytes = os.preadv(descriptor, [target], offset)
            if not num_bytes:
                raise EngineError(f"{path} ends before byte {end}; it was changed while it was read, start again")
            target, offset = target[num_bytes:], offset + num_bytes
    except OSError as error:
        raise EngineError(f"{path} can't be read ({error.strerror}); check the disk") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _close(descriptor: int, readers: ThreadPoolExecutor) -> None:
    # Reads under way hold the descriptor's number, which must not become another file's.
    readers.shutdown(wait=True, cancel_futures=True)
    os.close(descriptor)
