"""config.json of the family: both layouts, all layer names, and refusals that name the value."""

from typing import Any

import pytest

from runtime.errors import ConfigError
from runtime.families.registry import names_of, read_spec
from tests.support.tiny_models import tiny_config


def text_config(**overrides: Any) -> dict[str, Any]:
    return {**tiny_config().to_dict(), **overrides}


@pytest.mark.parametrize("name", ["full_attention", "indexed_attention", "qwen_sparse_attention"])
def test_every_name_of_sparse_attention_means_the_same(name: str) -> None:
    kinds = ["linear_attention"] * 3 + [name] + ["linear_attention"] * 3 + [name]
    spec = read_spec(text_config(layer_types=kinds), "models/tiny")
    assert spec.attention_layers == (3, 7)
    assert spec.layer_kinds[3] == "sparse_attention"
    assert spec.name == "tiny"


def test_missing_layer_types_put_attention_in_every_fourth_layer() -> None:
    assert read_spec(text_config(layer_types=None), "m").attention_layers == (3, 7)


def test_nested_and_text_only_configs_give_the_same_model() -> None:
    nested = {"model_type": "qwen4_exp", "tie_word_embeddings": False, "text_config": text_config()}
    assert read_spec(nested, "m") == read_spec(text_config(), "m")


def test_the_name_that_some_quantisers_gave_the_family_means_the_same() -> None:
    text = text_config(model_type="qwen3_8_flash_next_text")
    assert read_spec(text, "m") == read_spec(text_config(), "m")
    assert read_spec({"model_type": "qwen3_8_flash_next", "text_config": text}, "m") == read_spec(text_config(), "m")


def test_tying_is_read_from_the_outer_config_first() -> None:
    nested = {"model_type": "qwen4_exp", "tie_word_embeddings": True, "text_config": text_config()}
    assert read_spec(nested, "m").ties_embeddings


def test_ngram_layers_count_from_one_in_the_config() -> None:
    spec = read_spec(text_config(eos_token_id=[7, 9]), "m")
    assert spec.ngram is not None
    assert spec.ngram.layer_indices == (1, 4)
    assert spec.ngram.break_token_id == 7
    assert spec.eos_token_ids == (7, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "llama"),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("output_gate_type", "tanh"),
        ("layer_types", ["mamba"] * 8),
        ("layer_types", ["linear_attention"]),
        ("hidden_size", None),
        ("hidden_size", "wide"),
        ("hidden_size", True),
        ("num_hidden_layers", 0),
        ("num_key_value_heads", 3),
        ("num_experts_per_tok", 13),
        ("hc_count", 1),
        ("indexer_n_heads", None),
        ("indexer_kv_heads", 2),
        ("indexer_budget", 18),
        ("indexer_head_dim", 4),
        ("linear_num_value_heads", 5),
        ("ple_layer_ids", [4]),
        ("ple_layer_ids", [99]),
        ("ple_embed_dim", 65),
        ("eos_token_id", None),
        ("norm_topk_prob", "yes"),
        ("rms_norm_eps", float("nan")),
        ("rms_norm_eps", 10**400),
        ("hidden_size", 10**3000),
        ("eos_token_id", -1),
        ("eos_token_id", 10**30),
        ("tie_word_embeddings", "maybe"),
    ],
)
def test_values_without_math_are_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        read_spec(text_config(**{key: value}), "models/tiny")
    message = str(caught.value)
    assert key in message
    assert "models/tiny" in message
    assert "\n" not in message
    assert len(message) < 200


def test_more_ngram_heads_than_primes_can_be_found_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="heads_per_ngram"):
        read_spec(text_config(heads_per_ngram=2**20, ple_embed_dim=2**21, ngram_vocab_size_base=2**31), "m")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope_type", "longrope"),
        ("partial_rotary_factor", 2.0),
        ("partial_rotary_factor", 1e308),
        ("rope_theta", None),
        ("rope_theta", 10**400),
        ("rope_theta", 1.0),
        ("rope_theta", 1e-300),
    ],
)
def test_rope_values_are_refused_by_name(key: str, value: Any) -> None:
    rope = {**text_config()["rope_parameters"], key: value}
    with pytest.raises(ConfigError, match=rf"rope_parameters\.{key}"):
        read_spec(text_config(rope_parameters=rope), "m")


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model.", "model."])
def test_the_prefix_is_found_in_the_tensor_names(prefix: str) -> None:
    names = names_of(read_spec(text_config(), "m"), [f"{prefix}layers.0.mlp.gate.weight", "model.visual.patch.weight"])
    assert names.of_layer(2, "mlp.gate.weight") == f"{prefix}layers.2.mlp.gate.weight"


def test_published_sizes_follow_from_the_published_config() -> None:
    """Qwen3.8-Flash-Next: 4,947,698,560 dense parameters, 320,001,536 n-gram rows of 160."""
    config = {
        "model_type": "qwen4_exp_text", "hidden_size": 2560, "num_hidden_layers": 48, "num_attention_heads": 24,
        "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_num_value_heads": 48, "linear_value_head_dim": 128, "output_gate_type": "sigmoid", "vocab_size": 248320,
        "max_position_embeddings": 262144, "eos_token_id": 248044, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 640, "shared_expert_intermediate_size": 640, "hc_lowrank": 320, "ple_layer_ids": [2],
        "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
        "indexer_compress_ratio": 4, "split_ngram_parts": 128,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    }  # fmt: skip
    facts = read_spec(config, "m").weights
    assert facts.dense_params == 4_947_698_560
    assert facts.ngram_table_bytes == 320_001_536 * 160 * 2
    assert facts.record_bytes == 4_915_200 * 2
