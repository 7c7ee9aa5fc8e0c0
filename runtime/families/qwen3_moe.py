"""Family qwen3_moe (Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder-30B-A3B): config.json to `ModelSpec`. Data, no torch.

Attention in every layer, no output gate, norms that multiply by the weight itself, no shared expert. As transformers'
Qwen3MoeForCausalLM computes it.
"""

from collections.abc import Mapping
from typing import Any

from runtime.families import shared_reading as shared
from runtime.families.family import Family
from runtime.spec import LayerKind, ModelSpec


def read_spec(config: Mapping[str, Any], source: str) -> ModelSpec:
    """The model that `config` describes. Raises ConfigError naming the value."""
    top, text = shared.readers(config, source)
    if text.flag("use_sliding_window", False):
        raise text.refuse("use_sliding_window", "is true; this version knows attention over the whole context only")
    attention_only: tuple[LayerKind, ...] = ("full_attention",)
    kinds = attention_only * text.integer("num_hidden_layers", maximum=shared.MAX_LAYERS)
    attention = shared.attention(text, has_output_gate=False)
    return ModelSpec(
        family=FAMILY.name,
        name=shared.model_name(source),
        vocab_size=text.integer("vocab_size"),
        hidden_size=text.integer("hidden_size"),
        num_layers=len(kinds),
        layer_kinds=kinds,
        rms_norm_eps=text.number("rms_norm_eps", 1e-6),
        attention=attention,
        indexer=None,
        delta_net=None,
        moe=shared.moe(text, has_shared=False, renormalises=text.flag("norm_topk_prob", False)),
        hyper_connection=None,
        ngram=None,
        ties_embeddings=shared.ties_embeddings(top, text),
        norm_adds_one=False,
        max_context_tokens=shared.max_context_tokens(text, attention.yarn),
        eos_token_ids=shared.stop_ids(top, text),
        weights=shared.UNMEASURED,
    )


FAMILY = Family("qwen3_moe", ("qwen3_moe",), read_spec, example="nvidia/Qwen3-30B-A3B-NVFP4")
