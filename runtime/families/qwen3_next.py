"""Family qwen3_next (Qwen3-Next-80B-A3B, Qwen3-Coder-Next): config.json to `ModelSpec`. Data, no torch.

Gated attention in every fourth layer, gated delta nets in the others, whose projections the checkpoint has fused and
grouped by key head; a shared expert. As transformers' Qwen3NextForCausalLM computes it.
"""

from collections.abc import Mapping
from typing import Any

from runtime.families import shared_reading as shared
from runtime.families.family import Family
from runtime.spec import ModelSpec


def read_spec(config: Mapping[str, Any], source: str) -> ModelSpec:
    """The model that `config` describes. Raises ConfigError naming the value."""
    _, text = shared.readers(config, source)
    return delta_net_model(config, source, FAMILY.name, is_grouped=True, renormalises=text.flag("norm_topk_prob", True))


def delta_net_model(
    config: Mapping[str, Any], source: str, family: str, *, is_grouped: bool, renormalises: bool
) -> ModelSpec:
    """A model of gated attention and delta nets with pre-norms: all that this family and qwen3_5_moe share."""
    top, text = shared.readers(config, source)
    kinds = shared.layer_kinds(text, ("full_attention",), "full_attention")
    attention = shared.attention(text, has_output_gate=True, head_dim=256, rotary_share=0.25)
    return ModelSpec(
        family=family,
        name=shared.model_name(source),
        vocab_size=text.integer("vocab_size"),
        hidden_size=text.integer("hidden_size"),
        num_layers=len(kinds),
        layer_kinds=kinds,
        rms_norm_eps=text.number("rms_norm_eps", 1e-6),
        attention=attention,
        indexer=None,
        delta_net=shared.delta_net(text, is_grouped=is_grouped) if "linear_attention" in kinds else None,
        moe=shared.moe(text, has_shared=True, renormalises=renormalises),
        hyper_connection=None,
        ngram=None,
        ties_embeddings=shared.ties_embeddings(top, text),
        norm_adds_one=True,
        max_context_tokens=shared.max_context_tokens(text, attention.yarn),
        eos_token_ids=shared.stop_ids(top, text),
        weights=shared.UNMEASURED,
    )


FAMILY = Family("qwen3_next", ("qwen3_next",), read_spec, example="nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4")
