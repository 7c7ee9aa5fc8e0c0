"""Family qwen4_exp (text): config.json to `ModelSpec`. Data, no torch.

Two config layouts: the full model (`qwen4_exp`, text nested in `text_config`) and the text-only one that transformers'
Qwen4ExpForCausalLM saves (`qwen4_exp_text`). Refuses every value the shared decoder has no math for.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Literal, cast

from runtime.families.config_reader import ConfigReader
from runtime.families.names import NameMap, is_hash_buffer
from runtime.families.ngram_hash import ngram_hash
from runtime.families.qwen4_exp_tensors import dense_tensors
from runtime.record import RecordLayout
from runtime.spec import (
    AttentionSpec,
    DeltaNetSpec,
    HyperConnectionSpec,
    IndexerSpec,
    LayerKind,
    ModelSpec,
    MoeSpec,
    NgramSpec,
    WeightFacts,
)

MODEL_TYPES = ("qwen4_exp", "qwen4_exp_text")

_SPARSE_NAMES = ("full_attention", "indexed_attention", "qwen_sparse_attention")
"""Names found in checkpoints for one and the same layer: attention over the tokens its indexer selects."""

_MAX_LAYERS = 4096
_MAX_NGRAM_HEADS = 1024
"""Of all n-gram layers together: each costs the search for a prime."""


def read_spec(config: Mapping[str, Any], source: str) -> ModelSpec:
    """The model that `config` describes; `source` (its folder) names the model and appears in errors.

    Weight facts are computed from shapes for bf16 experts and table. Raises ConfigError naming the value.
    """
    top = ConfigReader(config, source)
    is_nested = config.get("model_type") == "qwen4_exp"
    text = top.section("text_config") if is_nested else top
    _refuse_unknown_math(text)
    kinds = _layer_kinds(text)
    hidden_size = text.integer("hidden_size")
    stop_ids = text.integers("eos_token_id") or top.integers("eos_token_id")
    ngram = _ngram(text, kinds, hidden_size, stop_ids)
    vocab_size = text.integer("vocab_size")
    attention = _attention(text)
    moe = _moe(text)
    indexer = _indexer(text, attention.rotary_dims) if "sparse_attention" in kinds else None
    spec = ModelSpec(
        family="qwen4_exp",
        name=PurePath(source).name or "model",
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=len(kinds),
        layer_kinds=kinds,
        rms_norm_eps=text.number("rms_norm_eps", 1e-6),
        attention=attention,
        indexer=indexer,
        delta_net=_delta_net(text) if "linear_attention" in kinds else None,
        moe=moe,
        hyper_connection=HyperConnectionSpec(text.integer("hc_count", 4, minimum=2), text.integer("hc_lowrank", 320)),
        ngram=ngram,
        ties_embeddings=(top if top.has("tie_word_embeddings") else text).flag("tie_word_embeddings", False),
        max_context_tokens=text.integer("max_position_embeddings", 32768),
        eos_token_ids=stop_ids,
        weights=WeightFacts("bf16", 0, 0, 0, 0, is_measured=False),
    )
    return _with_computed_facts(spec)


def _refuse_unknown_math(text: ConfigReader) -> None:
    text.choice("hidden_act", ["silu"], "silu")
    if text.flag("attention_bias", False):
        raise text.refuse("attention_bias", "is true; this version knows attention without biases only")
    rope = text.section("rope_parameters")
    rope.choice("rope_type", ["default"], "default")


def _layer_kinds(text: ConfigReader) -> tuple[LayerKind, ...]:
    num_layers = text.integer("num_hidden_layers", maximum=_MAX_LAYERS)
    names = text.words("layer_types")
    if names is None:
        interval = text.integer("full_attention_interval", 4)
        names = tuple("linear_attention" if (i + 1) % interval else "full_attention" for i in range(num_layers))
    if len(names) != num_layers:
        raise text.refuse("layer_types", f"has {len(names)} entries where num_hidden_layers is {num_layers}")
    for name in names:
        if name != "linear_attention" and name not in _SPARSE_NAMES:
            known = ", ".join(("linear_attention", *_SPARSE_NAMES))
            raise text.refuse("layer_types", f"has {name!r}; this version knows {known}")
    return tuple("linear_attention" if name == "linear_attention" else "sparse_attention" for name in names)


def _attention(text: ConfigReader) -> AttentionSpec:
    head_dim = text.integer("head_dim", 256)
    rope = text.section("rope_parameters")
    num_heads, num_kv_heads = text.integer("num_attention_heads"), text.integer("num_key_value_heads")
    if num_heads % num_kv_heads:
        raise text.refuse("num_key_value_heads", f"is {num_kv_heads}; it must divide num_attention_heads {num_heads}")
    partial_rotary_factor = rope.number("partial_rotary_factor", 1.0)
    if partial_rotary_factor > 1:
        raise rope.refuse("partial_rotary_factor", f"is {partial_rotary_factor}; at most 1 makes sense")
    rotary_dims = int(head_dim * partial_rotary_factor)
    if _rotated(rotary_dims) > head_dim:
        raise rope.refuse("partial_rotary_factor", f"rotates {_rotated(rotary_dims)} dims; a head has {head_dim}")
    return AttentionSpec(
        num_heads, num_kv_heads, head_dim, rotary_dims, rope.number("rope_theta"), has_output_gate=True
    )


def _rotated(rotary_dims: int) -> int:
    """Dims that turn, in pairs: an odd number of rotary dims takes one more."""
    return rotary_dims + rotary_dims % 2


def _indexer(text: ConfigReader, rotary_dims: int) -> IndexerSpec:
    if text.integer("indexer_kv_heads") != 1:
        raise text.refuse("indexer_kv_heads", "must be 1")
    block_tokens = text.integer("indexer_compress_ratio")
    budget_tokens = text.integer("indexer_budget")
    if budget_tokens % block_tokens:
        raise text.refuse(
            "indexer_budget", f"is {budget_tokens}; it must be a multiple of indexer_compress_ratio {block_tokens}"
        )
    head_dim = text.integer("indexer_head_dim")
    if _rotated(rotary_dims) > head_dim:
        raise text.refuse("indexer_head_dim", f"is {head_dim}; the {_rotated(rotary_dims)} rotary dims must fit")
    return IndexerSpec(text.integer("indexer_n_heads"), head_dim, budget_tokens, block_tokens)


def _delta_net(text: ConfigReader) -> DeltaNetSpec:
    num_key_heads, num_value_heads = text.integer("linear_num_key_heads"), text.integer("linear_num_value_heads")
    if num_value_heads % num_key_heads:
        raise text.refuse(
            "linear_num_value_heads", f"is {num_value_heads}; linear_num_key_heads {num_key_heads} must divide it"
        )
    return DeltaNetSpec(
        num_key_heads=num_key_heads,
        num_value_heads=num_value_heads,
        key_dim=text.integer("linear_key_head_dim"),
        value_dim=text.integer("linear_value_head_dim"),
        conv_kernel=text.integer("linear_conv_kernel_dim", 4, minimum=2),
        gate_activation=cast(
            Literal["sigmoid", "silu"], text.choice("output_gate_type", ["sigmoid", "silu"], default="silu")
        ),
    )


def _moe(text: ConfigReader) -> MoeSpec:
    num_experts, num_routed = text.integer("num_experts"), text.integer("num_experts_per_tok")
    if num_routed > num_experts:
        raise text.refuse("num_experts_per_tok", f"is {num_routed}; there are only {num_experts} experts")
    return MoeSpec(
        num_experts,
        num_routed,
        text.integer("moe_intermediate_size"),
        text.integer("shared_expert_intermediate_size"),
        text.flag("norm_topk_prob", True),
    )


def _ngram(
    text: ConfigReader, kinds: tuple[LayerKind, ...], hidden_size: int, stop_ids: tuple[int, ...]
) -> NgramSpec | None:
    layer_ids = sorted(set(text.integers("ple_layer_ids")))
    if not layer_ids:
        return None
    for layer_id in layer_ids:
        # ple_layer_ids count from 1.
        if not 1 <= layer_id <= len(kinds) or kinds[layer_id - 1] != "linear_attention":
            raise text.refuse("ple_layer_ids", f"has {layer_id}, which is not a linear_attention layer (from 1)")
    if not stop_ids:
        raise text.refuse("eos_token_id", "is missing; the n-gram embedding needs it")
    spec = NgramSpec(
        layer_indices=tuple(layer_id - 1 for layer_id in layer_ids),
        embed_dim=text.integer("ple_embed_dim", hidden_size),
        conv_kernel=text.integer("ple_conv_kernel_size", 4, minimum=2),
        ngram_size=text.integer("ngram_size", 3, minimum=2),
        heads_per_ngram=text.integer("heads_per_ngram", 8),
        vocab_size_base=text.integer("ngram_vocab_size_base", 20_000_000, minimum=2),
        vocab_divisor=text.integer("make_ngram_vocab_size_divisible_by", 128),
        num_shards=text.integer("split_ngram_parts", 512),
        seed=text.integer("seed", 1234, minimum=0),
        break_token_id=stop_ids[0],
    )
    if len(spec.layer_indices) * spec.num_heads > _MAX_NGRAM_HEADS:
        raise text.refuse(
            "heads_per_ngram",
            f"is {spec.heads_per_ngram}, with ngram_size {spec.ngram_size} and {len(spec.layer_indices)} layers "
            f"{len(spec.layer_indices) * spec.num_heads} heads; at most {_MAX_NGRAM_HEADS} make sense",
        )
    if spec.embed_dim % spec.num_heads:
        raise text.refuse("ple_embed_dim", f"is {spec.embed_dim}; the {spec.num_heads} n-gram heads must divide it")
    return spec


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
        is_measured=False,
    )
    return replace(spec, weights=facts)
