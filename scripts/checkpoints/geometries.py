"""config.json of published models, as far as the runtime reads them, and of tiny ones with the same layout."""

from typing import Any

_GATED_ROPE = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
_MROPE = {**_GATED_ROPE, "mrope_interleaved": True, "mrope_section": [11, 11, 10]}
_DELTA_NET = {
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4, "head_dim": 256, "num_key_value_heads": 2, "max_position_embeddings": 262144,
}  # fmt: skip
_ALL = {"hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False}

PUBLISHED: dict[str, dict[str, Any]] = {
    "qwen3_moe": {
        **_ALL, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": True, "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1e6,
        "rope_scaling": None, "decoder_sparse_step": 1, "mlp_only_layers": [], "eos_token_id": 151645,
    },
    "qwen3_next": {
        **_ALL, **_DELTA_NET, "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
        "linear_num_value_heads": 32, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "norm_topk_prob": True, "vocab_size": 151936, "rope_theta": 1e7,
        "rope_scaling": None, "partial_rotary_factor": 0.25, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "eos_token_id": 151645,
    },
    "qwen3_5_moe": {
        **_ALL, **_DELTA_NET, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
        "linear_num_value_heads": 32, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "vocab_size": 248320, "rope_parameters": _MROPE,
        "eos_token_id": 248044, "mtp_num_hidden_layers": 1,
    },
    "qwen4_exp": {
        **_ALL, **_DELTA_NET, "hidden_size": 2560, "num_hidden_layers": 48, "num_attention_heads": 24,
        "linear_num_value_heads": 48, "output_gate_type": "sigmoid", "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 640, "shared_expert_intermediate_size": 640, "vocab_size": 248320,
        "rope_parameters": _MROPE, "eos_token_id": 248044, "hc_count": 4, "hc_lowrank": 320, "ple_layer_ids": [2],
        "ple_embed_dim": 2560, "ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 8,
        "ngram_vocab_size_base": 20_000_000, "make_ngram_vocab_size_divisible_by": 128, "split_ngram_parts": 128,
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
        "indexer_compress_ratio": 4, "mtp_num_hidden_layers": 1,
    },
}  # fmt: skip
"""The text part; nested where the family has a vision tower."""

VISION = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16, "spatial_merge_size": 2,
          "temporal_patch_size": 2, "in_channels": 3, "num_position_embeddings": 2304}  # fmt: skip
NESTED_FAMILIES = ("qwen3_5_moe", "qwen4_exp")

_TINY: dict[str, Any] = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
    "vocab_size": 512, "max_position_embeddings": 4096, "eos_token_id": 511, "hc_lowrank": 16, "ple_embed_dim": 256,
    "ngram_vocab_size_base": 100, "split_ngram_parts": 4, "indexer_head_dim": 32, "indexer_budget": 64,
}  # fmt: skip
_TINY_VISION = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_position_embeddings": 16}


def text_config(family: str, size: str, num_layers: int | None) -> dict[str, Any]:
    """The text part of config.json; `num_layers` cuts the model."""
    values = dict(PUBLISHED[family])
    if size == "tiny":
        values |= {key: value for key, value in _TINY.items() if key in values}
    if num_layers is not None:
        values["num_hidden_layers"] = num_layers
        if "ple_layer_ids" in values:
            values["ple_layer_ids"] = [layer for layer in values["ple_layer_ids"] if layer <= num_layers]
    return values


def vision_config(family: str, size: str, out_hidden_size: int) -> dict[str, Any] | None:
    """The vision tower's part, None for families without."""
    if family not in NESTED_FAMILIES:
        return None
    return {**VISION, **(_TINY_VISION if size == "tiny" else {}), "out_hidden_size": out_hidden_size}


def config_json(family: str, size: str, num_layers: int | None) -> dict[str, Any]:
    """All of config.json but the quantisation."""
    text = text_config(family, size, num_layers)
    vision = vision_config(family, size, text["hidden_size"])
    if vision is None:
        return {"model_type": family, **text}
    text["model_type"] = f"{family}_text"
    return {"model_type": family, "tie_word_embeddings": False, "text_config": text, "vision_config": vision}
