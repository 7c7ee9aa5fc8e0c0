"""Where all records live: one bank per layer in host memory, filled once from the checkpoint, read at every miss."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from runtime.checkpoint.expert_source import ExpertTensors
from runtime.experts.packing import check_layout, pack_record
from runtime.record import RecordLayout
from runtime.spec import ModelSpec

ProgressCallback = Callable[[int, int], None]
"""Called with (done bytes, total bytes); may raise to cancel the work."""


class ReadsExperts(Protocol):
    """The part of the checkpoint reader that the store needs."""

    def expert(self, layer: int, expert: int) -> ExpertTensors: ...


class ExpertStore(Protocol):
    """All routed experts of a model."""

    layout: RecordLayout
    num_layers: int
    num_experts: int
    source: str
    """Where a miss is read from, in words for a person."""
    bytes_per_miss: int

    def record(self, layer: int, expert: int) -> Tensor:
        """uint8 [record_bytes], not to be written."""
        ...


class PinnedStore:
    """One uint8 bank [num_experts, record_bytes] per layer, in plain host memory (page-locked where there is CUDA)."""

    source = "host memory"

    def __init__(self, banks: list[Tensor], layout: RecordLayout) -> None:
        self.layout = layout
        self.num_layers = len(banks)
        self.num_experts = banks[0].shape[0]
        self.bytes_per_miss = layout.record_bytes
        self._banks = banks

    @classmethod
    def fill(
        cls,
        expert_source: ReadsExperts,
        spec: ModelSpec,
        layout: RecordLayout,
        progress: ProgressCallback = lambda done, total: None,
    ) -> "PinnedStore":
        """Read every expert, reporting after each; an exception from `progress` frees what was filled so far.

        Raises CheckpointError where an expert can't be read or doesn't fit the layout.
        """
        check_layout(layout)
        num_experts = spec.moe.num_experts
        total = spec.num_layers * num_experts * layout.record_bytes
        banks: list[Tensor] = []
        progress(0, total)
        for layer in range(spec.num_layers):
            bank = torch.empty(num_experts, layout.record_bytes, dtype=torch.uint8)
            for expert in range(num_experts):
                pack_record(expert_source.expert(layer, expert), layout, bank[expert])
                progress((layer * num_experts + expert + 1) * layout.record_bytes, total)
            banks.append(bank)
        return cls(banks, layout)

    def record(self, layer: int, expert: int) -> Tensor:
        """uint8 [record_bytes], not to be written."""
        return self._banks[layer][expert]

    @property
    def num_bytes(self) -> int:
        return sum(bank.numel() for bank in self._banks)
