"""What a checkpoint holds for a model: checks every tensor's presence, shape and dtype before anything is allocated.

The format of a tensor is decided by the suffixes and dtypes present, never by the config. Tensors of the vision tower
and of multi-token prediction are skipped by name; any other tensor without a place in the model is refused. No torch.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from runtime.checkpoint.files import CheckpointFiles, TensorEntry
from runtime.errors import CheckpointError
from runtime.families.dense_tensors import dense_tensors
from runtime.families.names import NameMap, Projection, is_hash_buffer
from runtime.families.ngram_hash import ngram_hash
from runtime.record import NVFP4_GROUP
from runtime.spec import ExpertFormat, ModelSpec

PLAIN_FORMATS: dict[str, ExpertFormat] = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
"""Dtypes a dense tensor or a plain expert may have."""

TABLE_DTYPES = ("BF16", "F16", "F32", "F8_E4M3")
PROJECTIONS: tuple[Projection, ...] = ("gate_proj", "up_proj", "down_proj")

_SKIPPED = re.compile(r"(^|\.)(visual|vision_tower|mtp)\.")
_ACTIVATION_SCALES = (".input_scale", ".k_scale", ".v_scale")
"""Scales of quantised activations and KV: weights-only computing has no use for them."""


@dataclass(frozen=True)
class Inventory:
    """What was found; sizes in bytes are as stored."""

    expert_format: ExpertFormat
    expert_layout: Literal["per_expert", "fused"]
    dense_params: int
    ngram_table_bytes: int
    expert_bytes: int


def take_inventory(files: CheckpointFiles, spec: ModelSpec, names: NameMap) -> Inventory:
    """Check every tensor `spec` needs and that there is no other. Raises CheckpointError naming file and tensor."""
    checker = _Checker(files, spec, names)
    dense_params = checker.check_dense()
    table_bytes = checker.check_ngram_tables()
    layout, expert_format, expert_bytes = checker.check_experts()
    checker.refuse_unknown()
    return Inventory(expert_format, layout, dense_params, table_bytes, expert_bytes)


def ngram_shards(files: CheckpointFiles, stem: str) -> list[TensorEntry]:
    """The table's pieces in row order: one '.weight', or '.shard_0.weight', '.shard_1.weight', …"""
    whole = files.entries.get(f"{stem}.weight")
    if whole is not None:
        return [whole]
    shards = [files.find(f"{stem}.shard_0.weight")]
    while (shard := files.entries.get(f"{stem}.shard_{len(shards)}.weight")) is not None:
        shards.append(shard)
    return shards


def wrong_shape(entry: TensorEntry, shape: tuple[int, ...]) -> CheckpointError:
    """The error for a tensor whose shape contradicts the config."""
    return CheckpointError(
        f"{entry.file}: tensor {entry.name} has shape {list(entry.shape)}, config.json asks for {list(shape)}; "
        "the weights and config.json belong to different models, download both again"
    )


def wrong_dtype(entry: TensorEntry, allowed: tuple[str, ...]) -> CheckpointError:
    """The error for a tensor in a format that isn't read here."""
    return CheckpointError(
        f"{entry.file}: tensor {entry.name} has dtype {entry.dtype}, {' or '.join(allowed)} is needed; "
        "choose a checkpoint with NVFP4 (ModelOpt) or unquantised weights"
    )


class _Checker:
    """Ticks off each tensor it has checked, so that what is left over is unknown."""

    def __init__(self, files: CheckpointFiles, spec: ModelSpec, names: NameMap) -> None:
        self.files = files
        self.spec = spec
        self.names = names
        self.known: set[str] = set()

    def check(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> TensorEntry:
        entry = self.files.find(name)
        self.known.add(name)
        if entry.dtype not in dtypes:
            raise wrong_dtype(entry, dtypes)
        if entry.shape != shape:
            raise wrong_shape(entry, shape)
        return entry

    def check_scalar(self, name: str, dtypes: tuple[str, ...]) -> None:
        entry = self.files.find(name)
        self.check(name, (1,) if entry.shape == (1,) else (), dtypes)

    def check_dense(self) -> int:
        dense_params = 0
        for name, shape in dense_tensors(self.spec, self.names).items():
            if is_hash_buffer(name):
                self.check(name, shape, ("I64",))
            else:
                self.check(name, shape, tuple(PLAIN_FORMATS))
                dense_params += math.prod(shape)
        return dense_params

    def check_ngram_tables(self) -> int:
        ngram = self.spec.ngram
        if ngram is None:
            return 0
        table_bytes = 0
        for module_index, layer in enumerate(ngram.layer_indices):
            stem = self.names.of_ngram_table(layer)
            num_rows = ngram_hash(ngram, self.spec.vocab_size, module_index).table_rows
            shards = ngram_shards(self.files, stem)
            for shard in shards:
                rows = shard.shape[0] if shard.shape else 0
                self.check(shard.name, (rows, ngram.head_dim), (shards[0].dtype,))
            if shards[0].dtype not in TABLE_DTYPES:
                raise wrong_dtype(shards[0], TABLE_DTYPES)
            if sum(shard.shape[0] for shard in shards) != num_rows:
                raise self._wrong_table(shards, num_rows)
            if shards[0].dtype == "F8_E4M3":
                self.check_scalar(f"{stem}.weight_scale", tuple(PLAIN_FORMATS))
            table_bytes += sum(shard.end - shard.begin for shard in shards)
        return table_bytes

    def _wrong_table(self, shards: list[TensorEntry], num_rows: int) -> CheckpointError:
        found = sum(shard.shape[0] for shard in shards)
        return CheckpointError(
            f"{shards[-1].file}: the n-gram table has {found} rows up to tensor {shards[-1].name}, config.json asks "
            f"for {num_rows}; a shard is missing or belongs to another model, download the weights again"
        )

    def check_experts(self) -> tuple[Literal["per_expert", "fused"], ExpertFormat, int]:
        if self.names.of_fused_experts(0, "gate_up_proj") in self.files.entries:
            return "fused", *self._check_fused()
        return "per_expert", *self._check_per_expert()

    def _check_fused(self) -> tuple[ExpertFormat, int]:
        moe, hidden = self.spec.moe, self.spec.hidden_size
        dtype = self.files.find(self.names.of_fused_experts(0, "gate_up_proj")).dtype
        allowed = (dtype,) if dtype in PLAIN_FORMATS else tuple(PLAIN_FORMATS)
        num_bytes = 0
        for layer in range(self.spec.num_layers):
            gate_up = self.names.of_fused_experts(layer, "gate_up_proj")
            down = self.names.of_fused_experts(layer, "down_proj")
            first = self.check(gate_up, (moe.num_experts, 2 * moe.intermediate, hidden), allowed)
            second = self.check(down, (moe.num_experts, hidden, moe.intermediate), allowed)
            num_bytes += first.end - first.begin + second.end - second.begin
        return PLAIN_FORMATS[dtype], num_bytes

    def _check_per_expert(self) -> tuple[ExpertFormat, int]:
        first = self.files.find(f"{self.names.of_expert(0, 0, 'gate_proj')}.weight")
        if first.dtype != "U8" and first.dtype not in PLAIN_FORMATS:
            raise wrong_dtype(first, ("U8", *PLAIN_FORMATS))
        num_bytes = 0
        for layer in range(self.spec.num_layers):
            for expert in range(self.spec.moe.num_experts):
                for projection in PROJECTIONS:
                    stem = self.names.of_expert(layer, expert, projection)
                    num_bytes += self._check_matrix(stem, projection, first.dtype)
        return ("nvfp4" if first.dtype == "U8" else PLAIN_FORMATS[first.dtype]), num_bytes

    def _check_matrix(self, stem: str, projection: Projection, dtype: str) -> int:
        rows, columns = self.spec.moe.intermediate, self.spec.hidden_size
        if projection == "down_proj":
            rows, columns = columns, rows
        if dtype != "U8":
            plain = self.check(f"{stem}.weight", (rows, columns), (dtype,))
            return plain.end - plain.begin
        codes = self.check(f"{stem}.weight", (rows, columns // 2), ("U8",))
        scales = self.check(f"{stem}.weight_scale", (rows, -(-columns // NVFP4_GROUP)), ("F8_E4M3",))
        self.check_scalar(f"{stem}.weight_scale_2", tuple(PLAIN_FORMATS))
        return codes.end - codes.begin + scales.end - scales.begin

    def refuse_unknown(self) -> None:
        for name in self.files.entries.keys() - self.known:
            is_tied_head = name == self.names.lm_head
            if not (_SKIPPED.search(name) or name.endswith(_ACTIVATION_SCALES) or is_tied_head):
                file = self.files.entries[name].file
                raise CheckpointError(
                    f"{file}: tensor {name} has no place in this model (config.json says {self.spec.family}); "
                    "the weights and config.json belong to different models, download both again"
                )
