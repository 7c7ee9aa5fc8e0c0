"""Routed experts of a checkpoint, one at a time, whatever their layout: per expert or fused, quantised or plain.

Hands out views of the mapped files and copies nothing.
"""

from dataclasses import dataclass

from runtime.checkpoint.formats import StoredMatrix, find_matrix
from runtime.checkpoint.inventory import PROJECTIONS, has_fused_experts
from runtime.checkpoint.matrices import Matrix, read_bank, read_matrix
from runtime.checkpoint.tensors import TensorSource
from runtime.families.names import NameMap
from runtime.spec import ModelSpec


@dataclass(frozen=True)
class ExpertTensors:
    """gate, up: [intermediate, hidden]; down: [hidden, intermediate]. All three in one format."""

    gate: Matrix
    up: Matrix
    down: Matrix


class ExpertSource:
    """Reads experts of one checkpoint."""

    def __init__(self, source: TensorSource, spec: ModelSpec, names: NameMap) -> None:
        self._source = source
        self._spec = spec
        self._names = names

    def expert(self, layer: int, expert: int) -> ExpertTensors:
        """The three matrices of one expert. Raises CheckpointError naming the tensor that can't be used."""
        if has_fused_experts(self._source.files, self._names, layer):
            return self._fused(layer, expert)
        moe, hidden = self._spec.moe, self._spec.hidden_size
        matrices = []
        for projection in PROJECTIONS:
            stored = find_matrix(self._source.files, self._names.of_expert(layer, expert, projection))
            is_down = projection == "down_proj"
            stored.check((hidden, moe.intermediate) if is_down else (moe.intermediate, hidden))
            matrices.append(read_matrix(self._source, stored))
        return ExpertTensors(*matrices)

    def announce(self, layer: int, expert: int) -> None:
        """Have the system begin to read the expert's bytes. Waits for nothing."""
        for stored, is_bank in self._stored(layer, expert):
            for entry in (stored.values, stored.scales):
                if entry is None:
                    continue
                begin, end = entry.begin, entry.end
                if is_bank and entry.shape and entry.shape[0] == self._spec.moe.num_experts:
                    part_bytes = (end - begin) // entry.shape[0]
                    begin += expert * part_bytes
                    end = begin + part_bytes
                self._source.announce(entry, begin, end)

    def release_pages(self) -> None:
        """Give the memory of everything read so far back to the system."""
        self._source.release_pages()

    def _stored(self, layer: int, expert: int) -> list[tuple[StoredMatrix, bool]]:
        """Where the expert's matrices lie, and whether all experts of the layer lie there."""
        files, names = self._source.files, self._names
        if has_fused_experts(files, names, layer):
            stems = [names.of_fused_experts(layer, name) for name in ("gate_up_proj", "down_proj")]
            return [(find_matrix(files, stem, is_bank=True), True) for stem in stems]
        return [(find_matrix(files, names.of_expert(layer, expert, name)), False) for name in PROJECTIONS]

    def _fused(self, layer: int, expert: int) -> ExpertTensors:
        stems = (self._names.of_fused_experts(layer, "gate_up_proj"), self._names.of_fused_experts(layer, "down_proj"))
        gate_up, down = (find_matrix(self._source.files, stem, is_bank=True) for stem in stems)
        moe, hidden = self._spec.moe, self._spec.hidden_size
        gate_up.check((moe.num_experts, 2 * moe.intermediate, hidden))
        down.check((moe.num_experts, hidden, moe.intermediate))
        return ExpertTensors(*read_bank(self._source, gate_up, expert, 2), *read_bank(self._source, down, expert, 1))
