"""Where all records live, and the store that keeps them in host memory: one bank per layer, filled once, read at every
miss. Where memory is too small for that: `mapped_store.py`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from runtime.checkpoint.expert_source import ExpertTensors
from runtime.checkpoint.page_reader import PageReader
from runtime.experts.packing import check_layout, pack_record
from runtime.experts.pinning import page_aligned, pin
from runtime.record import RecordLayout

_AHEAD_BYTES = 32 << 20
ProgressCallback = Callable[[int, int], None]
"""Called with (done bytes, total bytes); may raise to cancel the work."""


class ReadsExperts(Protocol):
    """The part of the checkpoint reader that the store needs."""

    def expert(self, layer: int, expert: int) -> ExpertTensors: ...

    def announce(self, layer: int, expert: int) -> None: ...

    def release_pages(self) -> None: ...


class ExpertStore(Protocol):
    """All routed experts of a model."""

    layouts: tuple[RecordLayout, ...]
    """Of each layer; a miss moves that many bytes."""
    num_layers: int
    num_experts: int
    source: str
    """Where a miss is read from, in words for a person."""
    records_stay: bool
    """A record stays where it is; else only until the next is asked for, and a copy of it must have ended by then."""

    @property
    def num_disk_bytes(self) -> int:
        """Read from the disk for records since the store is there."""
        ...

    def announce(self, layer: int, experts: Sequence[int], is_passing: bool = False) -> int:
        """These records will be asked for next, in this order. Returns how many of them come from the disk.

        `is_passing`: once another layer's are announced, they are not worth keeping in place of others.
        """
        ...

    def is_in_memory(self, layer: int, expert: int) -> bool:
        """No disk is waited for to have it."""
        ...

    def record(self, layer: int, expert: int) -> Tensor:
        """uint8 [record_bytes], not to be written."""
        ...


def experts_ahead(layout: RecordLayout) -> int:
    """Experts that the system reads ahead of the one that is packed, so that the disk never waits."""
    return max(1, _AHEAD_BYTES // layout.record_bytes)


class PinnedStore:
    """One uint8 bank [num_experts, record_bytes] per layer, in plain host memory (page-locked where there is CUDA)."""

    source = "host memory"
    records_stay = True
    num_disk_bytes = 0

    def __init__(self, banks: list[Tensor], layouts: tuple[RecordLayout, ...]) -> None:
        self.layouts = layouts
        self.num_layers = len(banks)
        self.num_experts = banks[0].shape[0]
        self._banks = banks

    @classmethod
    def fill(
        cls,
        expert_source: ReadsExperts,
        layouts: tuple[RecordLayout, ...],
        num_experts: int,
        progress: ProgressCallback = lambda done, total: None,
    ) -> "PinnedStore":
        """Read every expert once, reporting after each; an exception from `progress` frees what was filled so far.

        What was read is released layer by layer, so that file pages don't pile up beside the banks. Raises
        CheckpointError where an expert can't be read or doesn't fit the layout.
        """
        total = num_experts * sum(layout.record_bytes for layout in layouts)
        done = 0
        banks: list[Tensor] = []
        pages = PageReader()
        progress(done, total)
        for layer, layout in enumerate(layouts):
            check_layout(layout)
            bank = page_aligned(num_experts, layout.record_bytes)
            num_ahead = experts_ahead(layout)
            for expert in range(-num_ahead, num_experts):
                if expert + num_ahead < num_experts:
                    expert_source.announce(layer, expert + num_ahead)
                    pages.make(bank[expert + num_ahead])
                if expert < 0:
                    continue
                pack_record(expert_source.expert(layer, expert), layout, bank[expert])
                done += layout.record_bytes
                progress(done, total)
            banks.append(bank)
            expert_source.release_pages()
        return cls(banks, layouts)

    def announce(self, layer: int, experts: Sequence[int], is_passing: bool = False) -> int:
        """All are here."""
        return 0

    def is_in_memory(self, layer: int, expert: int) -> bool:
        """All are."""
        return True

    def record(self, layer: int, expert: int) -> Tensor:
        """uint8 [record_bytes], not to be written."""
        return self._banks[layer][expert]

    def bank(self, layer: int) -> Tensor:
        """uint8 [num_experts, record_bytes], not to be written."""
        return self._banks[layer]

    def pin(self) -> None:
        """Page-lock every bank, so that a GPU reads it where it lies. Raises EngineError where the system refuses."""
        pin(self._banks, self)

    @property
    def num_bytes(self) -> int:
        return sum(bank.numel() for bank in self._banks)
