"""Which families there are: picks one by config.json's model_type. Data only, no torch."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from runtime.errors import ConfigError
from runtime.families import qwen3_5_moe, qwen3_moe, qwen3_next, qwen4_exp
from runtime.families.dense_tensors import dense_tensors
from runtime.families.family import Family
from runtime.families.names import NameMap, detect_names, is_hash_buffer
from runtime.families.ngram_hash import ngram_hash
from runtime.record import RecordLayout
from runtime.spec import ModelSpec, WeightFacts

FAMILIES: tuple[Family, ...] = (qwen4_exp.FAMILY, qwen3_5_moe.FAMILY, qwen3_next.FAMILY, qwen3_moe.FAMILY)


def read_spec(config: Mapping[str, Any], source: str) -> ModelSpec:
    """The model a parsed config.json describes; `source` is its folder. Raises ConfigError naming the value.

    Weight facts are computed from shapes, for bf16 weights; `checkpoint.facts` replaces them by measured ones.
    """
    model_type = config.get("model_type")
    for family in FAMILIES:
        if model_type in family.model_types:
            return _with_computed_facts(family.read_spec(config, source))
    known = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise ConfigError(f"{source}: config.json has model_type {model_type!r}; this version runs {known}")


def names_of(spec: ModelSpec, tensor_names: Iterable[str] | None = None) -> NameMap:
    """Names of `spec`'s tensors; give the names a checkpoint has (`CheckpointFiles.entries`) to detect its prefix."""
    assert any(family.name == spec.family for family in FAMILIES)
    return detect_names(tensor_names)


def _with_computed_facts(spec: ModelSpec) -> ModelSpec:
    layout = RecordLayout.build(spec.hidden_size, spec.moe.intermediate, "bf16")
    dense = dense_tensors(spec, NameMap(""))
    dense_params = sum(math.prod(shape) for name, shape in dense.items() if not is_hash_buffer(name))
    table_bytes = 0
    if spec.ngram is not None:
        rows = sum(ngram_hash(spec.ngram, spec.vocab_size, i).table_rows for i in range(len(spec.ngram.layer_indices)))
        table_bytes = rows * spec.ngram.head_dim * 2
    expert_bytes = spec.num_layers * spec.moe.num_experts * layout.record_bytes
    facts = WeightFacts(
        expert_format="bf16",
        record_bytes=layout.record_bytes,
        dense_params=dense_params,
        ngram_table_bytes=table_bytes,
        checkpoint_bytes=dense_params * 2 + table_bytes + expert_bytes,
    )
    return replace(spec, weights=facts)
