"""Tiny random configs of the families beside qwen4_exp, at least three each; models of them come from transformers."""

from typing import Any

from transformers import Qwen3_5MoeTextConfig, Qwen3MoeConfig, Qwen3NextConfig

from tests.support.tiny_models import BREAK_ID

_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}

_BASE: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3,
    "max_position_embeddings": 4096, "eos_token_id": BREAK_ID, "bos_token_id": None, "pad_token_id": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
_DELTA_NET: dict[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "shared_expert_intermediate_size": 40,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25},
}  # fmt: skip
# Nothing divides anything, and every ratio is odd.
_ODD_DELTA_NET: dict[str, Any] = {
    "vocab_size": 131, "hidden_size": 40, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3,
    "head_dim": 20, "linear_num_key_heads": 3, "linear_num_value_heads": 9, "linear_key_head_dim": 12,
    "linear_value_head_dim": 20, "linear_conv_kernel_dim": 3, "moe_intermediate_size": 18, "num_experts": 7,
    "num_experts_per_tok": 2, "shared_expert_intermediate_size": 22, "tie_word_embeddings": True,
    "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5},
}  # fmt: skip

CONFIG_CLASSES = {"qwen3_moe": Qwen3MoeConfig, "qwen3_next": Qwen3NextConfig, "qwen3_5_moe": Qwen3_5MoeTextConfig}
FAMILY_CONFIGS: dict[tuple[str, str], dict[str, Any]] = {
    ("qwen3_moe", "grouped_heads"): {"norm_topk_prob": True},
    ("qwen3_moe", "odd_sizes"): {
        "vocab_size": 131, "hidden_size": 36, "num_hidden_layers": 3, "num_attention_heads": 5,
        "num_key_value_heads": 5, "head_dim": 14, "moe_intermediate_size": 18, "num_experts": 7,
        "num_experts_per_tok": 1, "tie_word_embeddings": True,
    },
    ("qwen3_moe", "yarn"): {"num_attention_heads": 8, "num_key_value_heads": 1, "rope_parameters": _YARN},
    ("qwen3_next", "grouped_heads"): _DELTA_NET,
    ("qwen3_next", "odd_sizes"): {**_DELTA_NET, **_ODD_DELTA_NET, "norm_topk_prob": False},
    ("qwen3_next", "yarn"): {
        **_DELTA_NET, "linear_num_key_heads": 1, "num_key_value_heads": 4, "full_attention_interval": 2,
        "rope_parameters": {**_YARN, "partial_rotary_factor": 0.5, "truncate": False},
    },
    ("qwen3_5_moe", "grouped_heads"): _DELTA_NET,
    ("qwen3_5_moe", "odd_sizes"): {**_DELTA_NET, **_ODD_DELTA_NET},
    ("qwen3_5_moe", "yarn"): {
        **_DELTA_NET, "linear_num_value_heads": 2, "num_experts": 5, "num_experts_per_tok": 5,
        "rope_parameters": {**_YARN, "partial_rotary_factor": 0.5, "mrope_interleaved": True,
                            "mrope_section": [2, 1, 1], "attention_factor": 1.2, "beta_fast": 8.0},
    },
}  # fmt: skip


def family_config(family: str, name: str = "grouped_heads", **overrides: Any) -> Any:
    """transformers' config of one of the tiny models."""
    return CONFIG_CLASSES[family](**{**_BASE, **FAMILY_CONFIGS[family, name], **overrides})
