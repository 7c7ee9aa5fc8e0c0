"""Every tensor of a published repository: name, dtype, shape, without writing one. Text, vision tower and MTP."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runtime.checkpoint.files import DTYPE_BYTES
from runtime.families.dense_tensors import dense_tensors
from runtime.families.names import NameMap, is_hash_buffer
from runtime.families.ngram_hash import ngram_hash
from runtime.families.registry import read_spec
from runtime.spec import ModelSpec
from scripts.checkpoints.geometries import NESTED_FAMILIES, config_json
from scripts.checkpoints.storage import FORMATS, Shape, StorageFormat


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """One tensor of the checkpoint; `values` only where they can't be random."""

    name: str
    dtype: str
    shape: Shape
    values: tuple[int, ...] = ()

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


def plan_tensors(family: str, format_name: str, size: str, num_layers: int | None = None) -> Iterator[PlannedTensor]:
    """All tensors, in the order they are written."""
    config = config_json(family, size, num_layers)
    spec, fmt = read_spec(config, family), FORMATS[format_name]
    names = NameMap("model.language_model." if family in NESTED_FAMILIES else "model.")
    yield from _dense(spec, names, fmt)
    yield from _ngram_tables(spec, names, fmt)
    yield from _experts(spec, names, fmt)
    if config.get("vision_config"):
        yield from (PlannedTensor(f"model.visual.{name}", "BF16", s) for name, s in _vision(config["vision_config"]))
    if family != "qwen3_moe":
        yield from (PlannedTensor(f"mtp.{name}", "BF16", shape) for name, shape in _mtp(spec))


def _dense(spec: ModelSpec, names: NameMap, fmt: StorageFormat) -> Iterator[PlannedTensor]:
    for name, shape in dense_tensors(spec, names).items():
        if is_hash_buffer(name):
            yield PlannedTensor(name, "I64", shape, _hash_values(spec, name))
        elif name.endswith(".weight") and len(shape) == 2:
            stem = name.removesuffix(".weight")
            yield from (PlannedTensor(stem + suffix, dtype, s) for suffix, dtype, s in fmt.stored(stem, *shape))
        else:
            yield PlannedTensor(name, "BF16", shape)


def _hash_values(spec: ModelSpec, name: str) -> tuple[int, ...]:
    assert spec.ngram is not None
    layer = int(name.split("layers.")[1].split(".")[0])
    constants = ngram_hash(spec.ngram, spec.vocab_size, spec.ngram.layer_indices.index(layer))
    return {
        "layer_multipliers": constants.multipliers,
        "ngram_heads_vocab_sizes": constants.head_sizes,
        "ngram_heads_offsets": constants.head_offsets,
    }[name.rsplit(".", 1)[1]]


def _ngram_tables(spec: ModelSpec, names: NameMap, fmt: StorageFormat) -> Iterator[PlannedTensor]:
    if spec.ngram is None:
        return
    for index, layer in enumerate(spec.ngram.layer_indices):
        stem = names.of_ngram_table(layer)
        rows = ngram_hash(spec.ngram, spec.vocab_size, index).table_rows
        shard_rows = -(-rows // spec.ngram.num_shards)
        for shard in range(spec.ngram.num_shards):
            shape = (min(shard_rows, rows - shard * shard_rows), spec.ngram.head_dim)
            yield PlannedTensor(f"{stem}.shard_{shard}.weight", "F8_E4M3" if fmt.has_fp8_table else "BF16", shape)
        if fmt.has_fp8_table:
            yield PlannedTensor(f"{stem}.weight_scale", "BF16", (1,))


def _experts(spec: ModelSpec, names: NameMap, fmt: StorageFormat) -> Iterator[PlannedTensor]:
    hidden, intermediate = spec.hidden_size, spec.moe.intermediate
    for layer in range(spec.num_layers):
        for expert in range(spec.moe.num_experts):
            for projection in ("gate_proj", "up_proj", "down_proj"):
                shape = (hidden, intermediate) if projection == "down_proj" else (intermediate, hidden)
                stem = names.of_expert(layer, expert, projection)
                yield from (PlannedTensor(stem + suffix, dtype, s) for suffix, dtype, s in fmt.stored(stem, *shape))


def _vision(vision: dict[str, Any]) -> Iterator[tuple[str, Shape]]:
    width, inner = vision["hidden_size"], vision["intermediate_size"]
    patch = (vision["in_channels"], vision["temporal_patch_size"], vision["patch_size"], vision["patch_size"])
    yield from _linear("patch_embed.proj", (width, *patch))
    yield "pos_embed.weight", (vision["num_position_embeddings"], width)
    for block in range(vision["depth"]):
        for norm in ("norm1", "norm2"):
            yield from _linear(f"blocks.{block}.{norm}", (width,))
        yield from _linear(f"blocks.{block}.attn.qkv", (3 * width, width))
        yield from _linear(f"blocks.{block}.attn.proj", (width, width))
        yield from _linear(f"blocks.{block}.mlp.linear_fc1", (inner, width))
        yield from _linear(f"blocks.{block}.mlp.linear_fc2", (width, inner))
    merged = width * vision["spatial_merge_size"] ** 2
    yield from _linear("merger.norm", (width,))
    yield from _linear("merger.linear_fc1", (merged, merged))
    yield from _linear("merger.linear_fc2", (vision["out_hidden_size"], merged))


def _linear(stem: str, shape: Shape) -> Iterator[tuple[str, Shape]]:
    yield f"{stem}.weight", shape
    yield f"{stem}.bias", shape[:1]


def _mtp(spec: ModelSpec) -> Iterator[tuple[str, Shape]]:
    """One attention layer with experts, and what joins the embedding to the hidden state before it."""
    hidden, moe = spec.hidden_size, spec.moe
    if spec.hyper_connection is None:
        yield "fc.weight", (hidden, 2 * hidden)
    else:
        yield "fc_embedding.weight", (hidden, hidden)
        yield "fc_hidden.weight", (hidden, hidden)
    yield "pre_fc_norm_embedding.weight", (hidden,)
    yield "pre_fc_norm_hidden.weight", (spec.residual_width,)
    attention_layer = f"layers.{spec.attention_layers[0] if spec.attention_layers else 3}."
    for name, shape in dense_tensors(spec, NameMap("")).items():
        if name.startswith(attention_layer):
            yield name.replace(attention_layer, "layers.0."), shape
        elif not name.startswith(("layers.", "embed_tokens", "lm_head")):
            yield name, shape
    yield "layers.0.mlp.experts.gate_up_proj", (moe.num_experts, 2 * moe.intermediate, hidden)
    yield "layers.0.mlp.experts.down_proj", (moe.num_experts, hidden, moe.intermediate)
