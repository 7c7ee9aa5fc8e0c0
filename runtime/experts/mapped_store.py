"""The mapped store: all records on the disk, as many in memory as the budget leaves. For hosts with less memory than
experts."""

import logging
import shutil
from collections.abc import Sequence

from filelock import FileLock, Timeout
from torch import Tensor

from runtime.checkpoint.record_place import RecordPlace
from runtime.experts.checkpoint_records import CheckpointRecords
from runtime.experts.host_cache import HostCache, Key
from runtime.experts.pinning import pin
from runtime.experts.record_file import RecordFile, RecordFileLayout, is_whole, write_record_file
from runtime.experts.record_reader import PendingRead, RecordReader
from runtime.experts.store import ProgressCallback, ReadsExperts
from runtime.memory.sizes import format_size
from runtime.record import RecordLayout, whole_blocks

_ROOM_LEFT_BYTES = 1 << 30
"""Of the disk, what a record file must leave free."""
_logger = logging.getLogger("hotslot.engine")


class MappedStore:
    """Records of all experts through a host cache of `num_cached` records."""

    records_stay = False

    def __init__(
        self, reader: RecordReader, layouts: tuple[RecordLayout, ...], num_experts: int, num_cached: int
    ) -> None:
        self.layouts = layouts
        self.num_layers, self.num_experts = len(layouts), num_experts
        self.source = reader.source
        self._reader = reader
        self._row_bytes = whole_blocks(max(layout.record_bytes for layout in layouts))
        self._is_pinned = False
        self._passing_layer: int | None = None
        self.cache = HostCache(num_cached, self._row_bytes, self._begin)

    def announce(self, layer: int, experts: Sequence[int], is_passing: bool = False) -> int:
        """Begin to read what is not in memory; returns how many of `experts` are not."""
        # A prompt uses a layer's experts chunk after chunk, and then those of the next layer.
        if self._passing_layer is not None and not (is_passing and layer == self._passing_layer):
            self.cache.let_pass()
        self._passing_layer = layer if is_passing else None
        return self.cache.announce([(layer, expert) for expert in experts], is_passing)

    def is_in_memory(self, layer: int, expert: int) -> bool:
        return self.cache.has((layer, expert))

    def record(self, layer: int, expert: int) -> Tensor:
        """uint8 [record_bytes], not to be written; only valid until the next is asked for.

        Waits for the disk. Raises EngineError where the disk refuses, CheckpointError where the expert can't be used.
        """
        return self.cache.take((layer, expert))[: self.layouts[layer].record_bytes]

    def pin(self) -> None:
        """Page-lock the cache, so that copies to a GPU are fast. Raises EngineError where the system refuses."""
        pin([self.cache.memory], self.cache)
        self._is_pinned = True

    def resize(self, num_cached: int) -> None:
        """Room for so many records instead, with none in it. No copy of a record may be under way."""
        # The old memory goes first: there may not be room for both.
        self.cache.close()
        del self.cache
        self.cache = HostCache(num_cached, self._row_bytes, self._begin)
        if self._is_pinned:
            self.pin()

    @property
    def num_bytes(self) -> int:
        """Held in memory."""
        return self.cache.memory.nbytes

    @property
    def num_disk_bytes(self) -> int:
        """Read from the disk so far."""
        return self._reader.num_read_bytes

    def check_integrity(self) -> None:
        """Raise AssertionError unless the cache is sound."""
        self.cache.check_integrity()

    def _begin(self, key: Key, row: Tensor) -> PendingRead:
        return self._reader.begin(*key, row)


def open_records(
    place: RecordPlace | None,
    expert_source: ReadsExperts,
    layouts: tuple[RecordLayout, ...],
    num_experts: int,
    progress: ProgressCallback,
) -> tuple[RecordReader, str]:
    """The record file, made now if there is room for it, or the checkpoint's own files; and what to say of that.

    Raises CheckpointError for an expert that can't be used, where records are made.
    """
    if place is None:
        return CheckpointRecords(expert_source, layouts), ""
    layout = RecordFileLayout.build(place.key, layouts, num_experts)
    try:
        problem = _ensure_file(place, layout, expert_source, layouts, progress)
        if not problem:
            progress(layout.file_bytes, layout.file_bytes)
            return RecordFile(place.path, layout), ""
    except OSError as error:
        problem = f"{place.path} can't be made ({error.strerror})"
    return CheckpointRecords(
        expert_source, layouts
    ), f"{problem}; experts are read from the checkpoint's files, slower."


def _ensure_file(
    place: RecordPlace,
    layout: RecordFileLayout,
    expert_source: ReadsExperts,
    layouts: tuple[RecordLayout, ...],
    progress: ProgressCallback,
) -> str:
    """Why there is no record file in the end, '' if there is one. Raises OSError."""
    if is_whole(place.path, layout):
        return ""
    place.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(place.lock, timeout=0):
            if is_whole(place.path, layout):
                return ""
            problem = _room_problem(place, layout.file_bytes)
            if not problem:
                _logger.info("writing %s, %d bytes", place.path, layout.file_bytes)
                write_record_file(place, layout, expert_source, layouts, progress)
            return problem
    except Timeout:
        return f"Another process is writing {place.path}"


def _room_problem(place: RecordPlace, file_bytes: int) -> str:
    folder = place.path.parent
    # What a killed process left is written over or gone on with.
    begun_bytes = place.partial.stat().st_size if place.partial.exists() else 0
    free_bytes = shutil.disk_usage(folder).free + begun_bytes
    if free_bytes >= file_bytes + _ROOM_LEFT_BYTES:
        return ""
    return (
        f"A record file of {format_size(file_bytes)} needs {format_size(file_bytes + _ROOM_LEFT_BYTES)} free on the "
        f"disk of {folder}, which has {format_size(free_bytes)}"
    )
