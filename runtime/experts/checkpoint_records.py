"""Records straight from the checkpoint's files: what a disk without room for a record file is left with.

An expert's tensors lie in several places there. The system is told of all of them when a read begins, so that it reads
several experts at once; the record is packed, and its scales checked, when it is waited for.
"""

from dataclasses import dataclass

from torch import Tensor

from runtime.experts.packing import check_layout, pack_record
from runtime.experts.store import ReadsExperts
from runtime.record import RecordLayout

_RELEASED_BYTES = 32 << 20
"""Of the files' pages, what the process holds at most."""


class CheckpointRecords:
    """Reads records through the page cache."""

    source = "the checkpoint's files"

    def __init__(self, expert_source: ReadsExperts, layouts: tuple[RecordLayout, ...]) -> None:
        for layout in layouts:
            check_layout(layout)
        self._source, self._layouts = expert_source, layouts
        self.num_read_bytes = 0
        self._held_bytes = 0

    def begin(self, layer: int, expert: int, row: Tensor) -> "_PackedRead":
        """Tell the system what will be read."""
        self.num_read_bytes += self._layouts[layer].record_bytes
        self._source.announce(layer, expert)
        return _PackedRead(self, layer, expert, row)

    def pack(self, layer: int, expert: int, row: Tensor) -> None:
        """Raises CheckpointError naming the tensor that can't be used."""
        layout = self._layouts[layer]
        pack_record(self._source.expert(layer, expert), layout, row[: layout.record_bytes])
        self._held_bytes += layout.record_bytes
        if self._held_bytes >= _RELEASED_BYTES:
            self._source.release_pages()
            self._held_bytes = 0


@dataclass(frozen=True)
class _PackedRead:
    records: CheckpointRecords
    layer: int
    expert: int
    row: Tensor

    def wait(self) -> None:
        self.records.pack(self.layer, self.expert, self.row)
