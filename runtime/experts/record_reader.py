"""What the mapped store reads records with: reads begin at once and are waited for later, several in flight."""

from typing import Protocol

from torch import Tensor


class PendingRead(Protocol):
    """A read that was begun."""

    def wait(self) -> None:
        """Return once the record is there. Raises a HotslotError where it can't be read."""
        ...


class RecordReader(Protocol):
    """Reads records from wherever they lie on the disk."""

    source: str
    """In words for a person."""
    num_read_bytes: int
    """Asked of the disk so far, what alignment adds included."""

    def begin(self, layer: int, expert: int, row: Tensor) -> PendingRead:
        """Start to fill `row`, uint8 [whole blocks], which nobody else touches before the read was waited for."""
        ...
