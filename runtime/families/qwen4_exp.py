"""Family qwen4_exp (text): config.json to `ModelSpec`. Data, no torch.

Two config layouts: the full model (`qwen4_exp`, text nested in `text_config`) and the text-only one that transformers'
Qwen4ExpForCausalLM saves (`qwen4_exp_text`). Refuses every value the shared decoder has no math for.
"""

from collections.abc import Mapping
from typing import Any, Literal, cast

from runtime.families import shared_reading as shared
from runtime.families.config_reader import ConfigReader
from runtime.families.family import Family
from runtime.spec import HyperConnectionSpec, IndexerSpec, LayerKind, ModelSpec, NgramSpec

_SPARSE_NAMES = ("full_attention", "indexed_attention", "qwen_sparse_attention")
"""Names found in checkpoints for one and the same layer: attention over the tokens its indexer selects."""

_MAX_NGRAM_HEADS = 1024
"""Of all n-gram layers together: each costs the search for a prime."""


def read_spec(config: Mapping[str, Any], source: str) -> ModelSpec:
    """The model that `config` describes. Raises ConfigError naming the value."""
    top, text = shared.readers(config, source)
    kinds = shared.layer_kinds(text, _SPARSE_NAMES, "sparse_attention")
    hidden_size, stop_ids = text.integer("hidden_size"), shared.stop_ids(top, text)
    attention = shared.attention(text, has_output_gate=True, head_dim=256)
    gate = cast(Literal["sigmoid", "silu"], text.choice("output_gate_type", ["sigmoid", "silu"], default="silu"))
    return ModelSpec(
        family=FAMILY.name,
        name=shared.model_name(source),
        vocab_size=text.integer("vocab_size"),
        hidden_size=hidden_size,
        num_layers=len(kinds),
        layer_kinds=kinds,
        rms_norm_eps=text.number("rms_norm_eps", 1e-6),
        attention=attention,
        indexer=_indexer(text, attention.rotary_dims) if "sparse_attention" in kinds else None,
        delta_net=shared.delta_net(text, gate) if "linear_attention" in kinds else None,
        moe=shared.moe(text, has_shared=True, renormalises=text.flag("norm_topk_prob", True)),
        hyper_connection=HyperConnectionSpec(text.integer("hc_count", 4, minimum=2), text.integer("hc_lowrank", 320)),
        ngram=_ngram(text, kinds, hidden_size, stop_ids),
        ties_embeddings=shared.ties_embeddings(top, text),
        norm_adds_one=True,
        max_context_tokens=shared.max_context_tokens(text, attention.yarn),
        eos_token_ids=stop_ids,
        weights=shared.UNMEASURED,
    )


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
    if shared.rotated(rotary_dims) > head_dim:
        raise text.refuse("indexer_head_dim", f"is {head_dim}; the {shared.rotated(rotary_dims)} rotary dims must fit")
    return IndexerSpec(text.integer("indexer_n_heads"), head_dim, budget_tokens, block_tokens)


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


_MODEL_TYPES = ("qwen4_exp", "qwen4_exp_text", "qwen3_8_flash_next", "qwen3_8_flash_next_text")
"""The last two are names that some quantisers gave the same config and the same tensors."""

FAMILY = Family("qwen4_exp", _MODEL_TYPES, read_spec, example="RadixArk/Qwen3.8-Flash-Next-NVFP4")
