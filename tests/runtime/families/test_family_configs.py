"""config.json of the families beside qwen4_exp: published sizes, both spellings, refusals that name the value."""

from typing import Any

import pytest

from runtime.errors import ConfigError
from runtime.families.registry import FAMILIES, read_spec
from runtime.record import RecordLayout
from scripts.checkpoints.geometries import PUBLISHED, config_json
from tests.support.tiny_families import CONFIG_CLASSES, family_config


@pytest.mark.parametrize(
    ("family", "dense_params", "nvfp4_bytes"),
    [
        ("qwen3_moe", 1_541_093_376, 2_654_208),
        ("qwen3_next", 2_365_075_200, 1_769_472),
        ("qwen3_5_moe", 2_447_794_688, 1_769_472),
        ("qwen4_exp", 4_947_698_560, 2_764_800),
    ],
)
def test_published_sizes(family: str, dense_params: int, nvfp4_bytes: int) -> None:
    spec = read_spec(config_json(family, "geometry", None), "m")
    assert spec.weights.dense_params == pytest.approx(dense_params, rel=1e-3)
    layout = RecordLayout.build(spec.hidden_size, spec.moe.intermediate, "nvfp4")
    assert layout.record_bytes == nvfp4_bytes + 128


def test_every_family_names_a_checkpoint_to_get() -> None:
    assert {family.name for family in FAMILIES} == set(PUBLISHED)
    assert all(family.example.count("/") == 1 for family in FAMILIES)


@pytest.mark.parametrize("family", CONFIG_CLASSES)
def test_yarn_means_the_same_in_old_and_new_spelling(family: str) -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 1024}
    config = family_config(family).to_dict()
    share = config.pop("rope_parameters").get("partial_rotary_factor")
    new = {"rope_type": "yarn", "rope_theta": 1e6, "partial_rotary_factor": share, **yarn}
    old = {"rope_theta": 1e6, "partial_rotary_factor": share, "rope_scaling": {"type": "yarn", **yarn}}
    spec = read_spec({**config, "rope_parameters": new}, "m")
    assert read_spec({**config, **old}, "m") == spec
    assert spec.attention.yarn is not None
    assert spec.attention.yarn.attention_factor == pytest.approx(1.1386, abs=1e-4)
    assert spec.max_context_tokens == 4096


def test_yarn_lengthens_a_context_that_the_config_left_as_it_was() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = {**config_json("qwen3_moe", "geometry", None), "rope_scaling": scaling}
    assert read_spec(config, "m").max_context_tokens == 131072


def test_a_nested_and_a_text_only_config_are_the_same_model() -> None:
    nested = config_json("qwen3_5_moe", "geometry", None)
    assert read_spec(nested, "m") == read_spec(nested["text_config"], "m")


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("qwen3_moe", "mlp_only_layers", [0]),
        ("qwen3_moe", "decoder_sparse_step", 2),
        ("qwen3_moe", "use_sliding_window", True),
        ("qwen3_moe", "norm_topk_prob", "yes"),
        ("qwen3_moe", "head_dim", 0),
        ("qwen3_moe", "num_key_value_heads", 3),
        ("qwen3_next", "mlp_only_layers", [3]),
        ("qwen3_next", "shared_expert_intermediate_size", None),
        ("qwen3_next", "linear_num_value_heads", 3),
        ("qwen3_next", "layer_types", ["sliding_attention"] * 4),
        ("qwen3_5_moe", "layer_types", ["linear_attention"]),
        ("qwen3_5_moe", "attention_bias", True),
        ("qwen3_5_moe", "hidden_act", "gelu"),
        ("qwen3_5_moe", "num_experts_per_tok", 99),
    ],
)
def test_values_without_math_are_refused_by_name(family: str, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key) as caught:
        read_spec({**family_config(family).to_dict(), key: value}, "models/tiny")
    assert "models/tiny" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen3_next"])
def test_layers_without_experts_are_refused_with_the_layer(family: str) -> None:
    with pytest.raises(
        ConfigError, match="mlp_only_layers has 2; this version has no layers without experts, choose another"
    ):
        read_spec({**family_config(family).to_dict(), "mlp_only_layers": [2, 3]}, "m")


@pytest.mark.parametrize(
    ("key", "value"), [("rope_type", "longrope"), ("factor", "four"), ("factor", -1), ("beta_fast", 0), ("truncate", 3)]
)
def test_yarn_values_are_refused_by_name(key: str, value: Any) -> None:
    config = family_config("qwen3_next", "yarn").to_dict()
    config["rope_parameters"] = {**config["rope_parameters"], key: value}
    with pytest.raises(ConfigError, match=key):
        read_spec(config, "m")
