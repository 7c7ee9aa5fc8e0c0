"""Routed experts of a checkpoint, one at a time, whatever their layout: per expert or fused, quantised or plain.

Hands out views of the mapped files and copies nothing.
"""

from dataclasses import dataclass

from runtime.checkpoint.files import TensorEntry
from runtime.checkpoint.formats import StoredMatrix, find_matrix
from runtime.checkpoint.inventory import PROJECTIONS, has_fused_experts
from runtime.checkpoint.matrices import Matrix, read_bank, read_matrix
from runtime.checkpoint.page_reader import PendingPages
from runtime.checkpoint.tensors import TensorSource
from runtime.families.names import NameMap
from runtime.spec import ModelSpec

_GAP_BYTES = 4096
"""Between two tensors, what is not worth two reads."""


@dataclass(frozen=True)
class ExpertTensors:
    """gate, up: [intermediate, hidden]; down: [hidden, intermediate]. All three in one format."""

    gate: Matrix
    up: Matrix
    down: Matrix


_Run = tuple[TensorEntry, int, int]
"""Bytes [begin, end) of the file that an entry names."""


@dataclass(frozen=True)
class _Coming:
    """An expert that is being read."""

    found: list[StoredMatrix]
    reads: list[PendingPages]


class ExpertSource:
    """Reads experts of one checkpoint."""

    def __init__(self, source: TensorSource, spec: ModelSpec, names: NameMap) -> None:
        self._source = source
        self._spec = spec
        self._names = names
        self._is_fused = [has_fused_experts(source.files, names, layer) for layer in range(spec.num_layers)]
        self._coming: dict[tuple[int, int], _Coming] = {}
        """What was announced and not asked for yet."""

    def expert(self, layer: int, expert: int) -> ExpertTensors:
        """The three matrices of one expert. Raises CheckpointError naming the tensor that can't be used."""
        coming = self._coming.pop((layer, expert), None)
        found = self._find(layer, expert) if coming is None else coming.found
        for read in () if coming is None else coming.reads:
            read.result()
        moe, hidden = self._spec.moe, self._spec.hidden_size
        if self._is_fused[layer]:
            gate_up, down = found
            gate_up.check((moe.num_experts, 2 * moe.intermediate, hidden))
            down.check((moe.num_experts, hidden, moe.intermediate))
            parts = (read_bank(self._source, gate_up, expert, 2), read_bank(self._source, down, expert, 1))
            return ExpertTensors(*parts[0], *parts[1])
        for projection, stored in zip(PROJECTIONS, found, strict=True):
            is_down = projection == "down_proj"
            stored.check((hidden, moe.intermediate) if is_down else (moe.intermediate, hidden))
        return ExpertTensors(*(read_matrix(self._source, stored) for stored in found))

    def announce(self, layer: int, expert: int) -> None:
        """Begin to read the expert's bytes. Waits for nothing."""
        found = self._find(layer, expert)
        entries = [entry for stored in found for entry in (stored.values, stored.scales) if entry is not None]
        runs = [self._run_of(entry, expert) if self._is_fused[layer] else _whole(entry) for entry in entries]
        self._coming[layer, expert] = _Coming(found, [self._source.announce(*run) for run in _joined(runs)])

    def release_pages(self) -> None:
        """Give the memory of everything read so far back to the system."""
        self._source.release_pages()

    def _find(self, layer: int, expert: int) -> list[StoredMatrix]:
        """Where the expert's matrices lie: gate, up and down, or the layer's banks of gate with up and of down."""
        files, names = self._source.files, self._names
        if self._is_fused[layer]:
            stems = [names.of_fused_experts(layer, name) for name in ("gate_up_proj", "down_proj")]
            return [find_matrix(files, stem, is_bank=True) for stem in stems]
        return [find_matrix(files, names.of_expert(layer, expert, name)) for name in PROJECTIONS]

    def _run_of(self, entry: TensorEntry, expert: int) -> _Run:
        """One expert's bytes of a bank; of scales that all experts share, all."""
        num_experts = self._spec.moe.num_experts
        if not entry.shape or entry.shape[0] != num_experts:
            return _whole(entry)
        part_bytes = (entry.end - entry.begin) // num_experts
        return entry, entry.begin + expert * part_bytes, entry.begin + (expert + 1) * part_bytes


def _whole(entry: TensorEntry) -> _Run:
    return entry, entry.begin, entry.end


def _joined(runs: list[_Run]) -> list[_Run]:
    """The same bytes, and small gaps between them, in as few runs as that takes."""
    joined: list[_Run] = []
    for entry, begin, end in sorted(runs, key=lambda run: (str(run[0].file), run[1])):
        if joined and joined[-1][0].file == entry.file and begin - joined[-1][2] <= _GAP_BYTES:
            joined[-1] = (joined[-1][0], joined[-1][1], end)
        else:
            joined.append((entry, begin, end))
    return joined
