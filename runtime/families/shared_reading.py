"""The parts of config.json that families have in common, read once for all of them. Data, no torch.

Refuses every value that the shared decoder has no math for, by name.
"""

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal

from runtime.families.config_reader import ConfigReader
from runtime.spec import AttentionSpec, DeltaNetSpec, LayerKind, MoeSpec, WeightFacts, YarnSpec

MAX_LAYERS = 4096

UNMEASURED = WeightFacts("bf16", 0, 0, 0, 0)
"""Stands in a spec until the registry computes the facts."""


def readers(config: Mapping[str, Any], source: str) -> tuple[ConfigReader, ConfigReader]:
    """The whole config and its text part: nested in `text_config` where there is a vision tower, else the same."""
    top = ConfigReader(config, source)
    text = top.section("text_config") if top.has("text_config") else top
    text.choice("hidden_act", ["silu"], "silu")
    if text.flag("attention_bias", False):
        raise text.refuse("attention_bias", "is true; this version knows attention without biases only")
    return top, text


def model_name(source: str) -> str:
    """A model is called as its folder."""
    return PurePath(source).name or "model"


def stop_ids(top: ConfigReader, text: ConfigReader) -> tuple[int, ...]:
    """The text config's, or else the outer one's."""
    return text.integers("eos_token_id") or top.integers("eos_token_id")


def ties_embeddings(top: ConfigReader, text: ConfigReader) -> bool:
    """The outer config's word counts where it has one."""
    return (top if top.has("tie_word_embeddings") else text).flag("tie_word_embeddings", False)


def layer_kinds(text: ConfigReader, attention_names: tuple[str, ...], attention: LayerKind) -> tuple[LayerKind, ...]:
    """A kind per layer; every name in `attention_names` means `attention`, the other is linear_attention."""
    num_layers = text.integer("num_hidden_layers", maximum=MAX_LAYERS)
    names = text.words("layer_types")
    if names is None:
        interval = text.integer("full_attention_interval", 4)
        names = tuple("linear_attention" if (i + 1) % interval else "full_attention" for i in range(num_layers))
    if len(names) != num_layers:
        raise text.refuse("layer_types", f"has {len(names)} entries where num_hidden_layers is {num_layers}")
    for name in names:
        if name != "linear_attention" and name not in attention_names:
            known = ", ".join(("linear_attention", *attention_names))
            raise text.refuse("layer_types", f"has {name!r}; this version knows {known}")
    return tuple("linear_attention" if name == "linear_attention" else attention for name in names)


def attention(
    text: ConfigReader, *, has_output_gate: bool, head_dim: int | None = None, rotary_share: float = 1.0
) -> AttentionSpec:
    """`head_dim` and `rotary_share` are the family's, where the config is silent; None is hidden_size / heads."""
    num_heads, num_kv_heads = text.integer("num_attention_heads"), text.integer("num_key_value_heads")
    if num_heads % num_kv_heads:
        raise text.refuse("num_key_value_heads", f"is {num_kv_heads}; it must divide num_attention_heads {num_heads}")
    head_dim = text.integer("head_dim", head_dim or text.integer("hidden_size") // num_heads)
    rope = _rope_section(text)
    share = (rope if rope.has("partial_rotary_factor") else text).number("partial_rotary_factor", rotary_share)
    if share > 1:
        raise rope.refuse("partial_rotary_factor", f"is {share}; at most 1 makes sense")
    rotary_dims = int(head_dim * share)
    if rotated(rotary_dims) > head_dim:
        raise rope.refuse("partial_rotary_factor", f"rotates {rotated(rotary_dims)} dims; a head has {head_dim}")
    # Configs written before transformers 5 have rope_theta beside the section.
    theta_reader = text if text.has("rope_theta") and not rope.has("rope_theta") else rope
    theta = theta_reader.number("rope_theta")
    if theta <= 1:
        raise theta_reader.refuse("rope_theta", f"is {theta}; a number above 1 is needed")
    return AttentionSpec(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rotary_dims=rotary_dims,
        rope_theta=theta,
        has_output_gate=has_output_gate,
        yarn=_yarn(text, rope),
    )


def rotated(rotary_dims: int) -> int:
    """Dims that turn, in pairs: an odd number of rotary dims takes one more."""
    return rotary_dims + rotary_dims % 2


def max_context_tokens(text: ConfigReader, yarn: YarnSpec | None) -> int:
    """What the config says, or what YaRN stretches to where a config turned it on and left the rest."""
    tokens = text.integer("max_position_embeddings", 32768)
    return tokens if yarn is None else max(tokens, int(yarn.factor * yarn.original_tokens))


def delta_net(
    text: ConfigReader, gate_activation: Literal["sigmoid", "silu"] = "silu", is_grouped: bool = False
) -> DeltaNetSpec:
    """Sizes of linear attention."""
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
        gate_activation=gate_activation,
        is_grouped=is_grouped,
    )


def moe(text: ConfigReader, *, has_shared: bool, renormalises: bool) -> MoeSpec:
    """Experts in every layer; layers with a plain MLP instead are refused."""
    if plain_layers := text.integers("mlp_only_layers"):
        raise text.refuse(
            "mlp_only_layers",
            f"has {plain_layers[0]}; this version has no layers without experts, choose another model",
        )
    if text.integer("decoder_sparse_step", 1) != 1:
        raise text.refuse(
            "decoder_sparse_step", "is not 1; this version has no layers without experts, choose another model"
        )
    # transformers 5 saves some configs with the second name.
    name = "num_local_experts" if text.has("num_local_experts") and not text.has("num_experts") else "num_experts"
    num_experts, num_routed = text.integer(name), text.integer("num_experts_per_tok")
    if num_routed > num_experts:
        raise text.refuse("num_experts_per_tok", f"is {num_routed}; there are only {num_experts} experts")
    return MoeSpec(
        num_experts,
        num_routed,
        text.integer("moe_intermediate_size"),
        text.integer("shared_expert_intermediate_size") if has_shared else None,
        renormalises,
    )


def _rope_section(text: ConfigReader) -> ConfigReader:
    """`rope_parameters`, or what it was called before transformers 5."""
    name = "rope_scaling" if text.has("rope_scaling") and not text.has("rope_parameters") else "rope_parameters"
    return text.section(name)


def _yarn(text: ConfigReader, rope: ConfigReader) -> YarnSpec | None:
    key = "type" if rope.has("type") and not rope.has("rope_type") else "rope_type"
    if rope.choice(key, ["default", "yarn"], "default") == "default":
        return None
    if rope.has("mscale") and rope.has("mscale_all_dim"):
        raise rope.refuse("mscale", "is given; this version knows YaRN with attention_factor only")
    original = rope.integer("original_max_position_embeddings", text.integer("max_position_embeddings", 32768))
    factor = rope.number("factor", text.integer("max_position_embeddings", 32768) / original)
    return YarnSpec(
        factor=factor,
        original_tokens=original,
        attention_factor=rope.number("attention_factor", 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        truncates=rope.flag("truncate", True),
    )
