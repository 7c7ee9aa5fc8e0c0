"""Owns the numbers of the demo architecture and the config.json that states them."""

from dataclasses import asdict, dataclass, field
from typing import Any

FULL_ATTENTION_LAYERS = (3, 7)


@dataclass(frozen=True)
class Architecture:
    """The fields of a `qwen4_exp` text config; names are those of config.json."""

    vocab_size: int = 8192
    hidden_size: int = 384
    num_hidden_layers: int = 8
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 64
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 6
    linear_key_head_dim: int = 64
    linear_value_head_dim: int = 64
    linear_conv_kernel_dim: int = 4
    moe_intermediate_size: int = 96
    shared_expert_intermediate_size: int = 128
    num_experts: int = 48
    num_experts_per_tok: int = 4
    norm_topk_prob: bool = True
    router_aux_loss_coef: float = 0.01
    hc_count: int = 4
    hc_lowrank: int = 32
    ple_layer_ids: tuple[int, ...] = (2,)
    ple_embed_dim: int = 256
    ple_conv_kernel_size: int = 4
    ngram_size: int = 3
    heads_per_ngram: int = 8
    ngram_vocab_size_base: int = 4096
    make_ngram_vocab_size_divisible_by: int = 128
    split_ngram_parts: int = 4
    seed: int = 1234
    indexer_n_heads: int = 4
    indexer_kv_heads: int = 1
    indexer_head_dim: int = 32
    indexer_budget: int = 512
    indexer_compress_ratio: int = 4
    output_gate_type: str = "sigmoid"
    hidden_act: str = "silu"
    attention_bias: bool = False
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    max_position_embeddings: int = 8192
    eos_token_id: int = 0
    bos_token_id: int = 0
    pad_token_id: int | None = None
    tie_word_embeddings: bool = True
    mamba_ssm_dtype: str = "float32"
    layer_types: tuple[str, ...] = tuple(
        "full_attention" if layer in FULL_ATTENTION_LAYERS else "linear_attention" for layer in range(8)
    )
    rope_parameters: dict[str, Any] = field(
        default_factory=lambda: {
            "rope_type": "default",
            "rope_theta": 100000.0,
            "partial_rotary_factor": 0.5,
            "mrope_interleaved": True,
            "mrope_section": [6, 5, 5],
        }
    )

    @property
    def rotary_dim(self) -> int:
        return int(self.head_dim * self.rope_parameters["partial_rotary_factor"])


def text_config(architecture: Architecture) -> dict[str, Any]:
    """The nested `text_config` of config.json."""
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(architecture).items()}
    return {"model_type": "qwen4_exp_text", "dtype": "bfloat16", **fields}


def checkpoint_config(architecture: Architecture, quantization: dict[str, Any]) -> dict[str, Any]:
    """The whole config.json of the demo folder."""
    return {
        "architectures": ["Qwen4ExpForConditionalGeneration"],
        "model_type": "qwen4_exp",
        "dtype": "bfloat16",
        "tie_word_embeddings": architecture.tie_word_embeddings,
        "text_config": text_config(architecture),
        "quantization_config": quantization,
    }
