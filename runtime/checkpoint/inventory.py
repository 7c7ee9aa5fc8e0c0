"""What a checkpoint holds for a model: checks every tensor's presence, shape and dtype before anything is allocated.

The format of a tensor is decided by the suffixes and dtypes present, never by the config. Tensors of the vision tower
and of multi-token prediction are skipped by name; any other tensor without a place in the model is refused. No torch.
"""

import math
import re
from dataclasses import dataclass
from functools import cached_property

from runtime.checkpoint.files import CheckpointFiles, TensorEntry
from runtime.checkpoint.formats import PLAIN_FORMATS, StoredMatrix, check_dtype, find_matrix, wrong_shape
from runtime.checkpoint.skipped_parts import is_skipped
from runtime.errors import CheckpointError
from runtime.families.dense_tensors import dense_tensors
from runtime.families.names import NameMap, Projection, is_hash_buffer
from runtime.families.ngram_hash import ngram_hash
from runtime.spec import ExpertFormat, ModelSpec

PROJECTIONS: tuple[Projection, ...] = ("gate_proj", "up_proj", "down_proj")

_ACTIVATION_SCALES = re.compile(
    r"[._](input_scale|input_global_scale|activation_scale|output_scale|(q|k|v|kv|prob)_scale)$"
)
"""Scales of quantised activations, attention and KV: weights-only computing has no use for them."""


@dataclass(frozen=True)
class Inventory:
    """What was found; sizes in bytes are as stored."""

    expert_formats: tuple[ExpertFormat, ...]
    """Of each layer."""
    dense_params: int
    ngram_table_bytes: int


def take_inventory(files: CheckpointFiles, spec: ModelSpec, names: NameMap) -> Inventory:
    """Check every tensor `spec` needs and that there is no other. Raises CheckpointError naming file and tensor."""
    checker = _Checker(files, spec, names)
    checker.refuse_missing_layers()
    dense_params = checker.check_dense()
    checker.refuse_missing_experts()
    table_bytes = checker.check_ngram_tables()
    expert_formats = tuple(checker.check_experts(layer) for layer in range(spec.num_layers))
    checker.refuse_unknown()
    return Inventory(expert_formats, dense_params, table_bytes)


def ngram_shards(files: CheckpointFiles, stem: str) -> list[StoredMatrix]:
    """The table's pieces in row order: `stem` itself, or its 'shard_0', 'shard_1', …, whose scales may be shared."""
    if f"{stem}.weight" in files.entries or f"{stem}.weight_packed" in files.entries:
        return [find_matrix(files, stem)]
    shards = [find_matrix(files, f"{stem}.shard_0", stem)]
    while any(f"{stem}.shard_{len(shards)}.{part}" in files.entries for part in ("weight", "weight_packed")):
        shards.append(find_matrix(files, f"{stem}.shard_{len(shards)}", stem))
    return shards


def has_fused_experts(files: CheckpointFiles, names: NameMap, layer: int) -> bool:
    """Whether all experts of the layer are in one bank."""
    stem = names.of_fused_experts(layer, "gate_up_proj")
    return any(
        f"{stem}{suffix}" in files.entries for suffix in ("", ".weight", ".weight_packed", "_weight_packed", "_packed")
    )


class _Checker:
    """Ticks off each tensor it has checked, so that what is left over is unknown."""

    def __init__(self, files: CheckpointFiles, spec: ModelSpec, names: NameMap) -> None:
        self.files = files
        self.spec = spec
        self.names = names
        self.known: set[str] = set()

    def refuse_missing_layers(self) -> None:
        """A layer of which there is nothing at all is named as such."""
        for layer in range(self.spec.num_layers):
            self._refuse_gap("layer", layer, self.spec.num_layers, set(self._experts_found), "")

    def refuse_missing_experts(self) -> None:
        """So is an expert, where a layer has others of its own."""
        for layer, found in sorted(self._experts_found.items()):
            if found and layer < self.spec.num_layers:
                for expert in range(self.spec.moe.num_experts):
                    self._refuse_gap("expert", expert, self.spec.moe.num_experts, found, f" of layer {layer}")

    @cached_property
    def _experts_found(self) -> dict[int, set[int]]:
        """Experts with tensors of their own, by layer."""
        pattern = re.compile(re.escape(self.names.prefix) + r"layers\.(\d+)\.(?:mlp\.experts\.(\d+)\.)?")
        found: dict[int, set[int]] = {}
        for name in self.files.entries:
            if match := pattern.match(name):
                experts = found.setdefault(int(match[1]), set())
                if match[2] is not None:
                    experts.add(int(match[2]))
        return found

    def _refuse_gap(self, what: str, index: int, count: int, found: set[int], where: str) -> None:
        if index not in found:
            raise CheckpointError(
                f"{self.files.folder}: {what} {index}{where} is missing, config.json asks for {count}; "
                "the download is incomplete, get the missing weights"
            )

    def check_matrix(self, stored: StoredMatrix, shape: tuple[int, ...]) -> StoredMatrix:
        stored.check(shape)
        self.known.update(entry.name for entry in stored.entries)
        return stored

    def check_dense(self) -> int:
        dense_params = 0
        for name, shape in dense_tensors(self.spec, self.names).items():
            if name.endswith(".weight") and len(shape) == 2:
                self.check_matrix(find_matrix(self.files, name.removesuffix(".weight")), shape)
            else:
                entry = self.files.find(name)
                self.known.add(name)
                check_dtype(entry, ("I64",) if is_hash_buffer(name) else tuple(PLAIN_FORMATS))
                if entry.shape != shape:
                    raise wrong_shape(entry, shape)
            if not is_hash_buffer(name):
                dense_params += math.prod(shape)
        return dense_params

    def check_ngram_tables(self) -> int:
        ngram = self.spec.ngram
        if ngram is None:
            return 0
        table_bytes = 0
        for module_index, layer in enumerate(ngram.layer_indices):
            num_rows = ngram_hash(ngram, self.spec.vocab_size, module_index).table_rows
            shards = ngram_shards(self.files, self.names.of_ngram_table(layer))
            for shard in shards:
                check_dtype(shard.values, (shards[0].values.dtype,))
                self.check_matrix(shard, (shard.values.shape[0] if shard.values.shape else 0, ngram.head_dim))
                table_bytes += shard.values.end - shard.values.begin
                if shard.kind == "nvfp4" and shard.scales is not None:
                    table_bytes += shard.scales.end - shard.scales.begin
            found = sum(shard.values.shape[0] for shard in shards)
            if found != num_rows:
                raise self._wrong_table(shards[-1].values, found, num_rows)
        return table_bytes

    def _wrong_table(self, last: TensorEntry, found: int, num_rows: int) -> CheckpointError:
        return CheckpointError(
            f"{last.file}: the n-gram table has {found} rows up to tensor {last.name}, config.json asks "
            f"for {num_rows}; a shard is missing or belongs to another model, download the weights again"
        )

    def check_experts(self, layer: int) -> ExpertFormat:
        """Format of one layer's experts, which must agree with each other."""
        moe, hidden = self.spec.moe, self.spec.hidden_size
        shapes = {"gate_proj": (moe.intermediate, hidden), "down_proj": (hidden, moe.intermediate)}
        shapes["up_proj"] = shapes["gate_proj"]
        if has_fused_experts(self.files, self.names, layer):
            gate_up = find_matrix(self.files, self.names.of_fused_experts(layer, "gate_up_proj"), is_bank=True)
            down = find_matrix(self.files, self.names.of_fused_experts(layer, "down_proj"), is_bank=True)
            self.check_matrix(gate_up, (moe.num_experts, 2 * moe.intermediate, hidden))
            self.check_matrix(down, (moe.num_experts, hidden, moe.intermediate))
            return self._common_format(layer, [gate_up, down])
        stored = [
            self.check_matrix(
                find_matrix(self.files, self.names.of_expert(layer, expert, projection)), shapes[projection]
            )
            for expert in range(moe.num_experts)
            for projection in PROJECTIONS
        ]
        return self._common_format(layer, stored)

    def _common_format(self, layer: int, stored: list[StoredMatrix]) -> ExpertFormat:
        first = stored[0]
        for matrix in stored:
            if matrix.expert_format != first.expert_format:
                raise CheckpointError(
                    f"{matrix.values.file}: tensor {matrix.values.name} is {matrix.expert_format}, but other experts "
                    f"of layer {layer} are {first.expert_format}; choose a checkpoint with one format per layer"
                )
        return first.expert_format

    def refuse_unknown(self) -> None:
        for name in sorted(self.files.entries.keys() - self.known):
            is_tied_head = name == self.names.lm_head
            if not (is_skipped(name) or _ACTIVATION_SCALES.search(name) or is_tied_head):
                file = self.files.entries[name].file
                raise CheckpointError(
                    f"{file}: tensor {name} has no place in this model (config.json says {self.spec.family}); "
                    "the weights and config.json belong to different models, download both again"
                )
