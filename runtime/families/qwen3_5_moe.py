"""Family qwen3_5_moe (Qwen3.5 and Qwen3.6 mixtures): config.json to `ModelSpec`. Data, no torch.

As qwen3_next, but the delta net's projections are apart, router weights are always renormalised, and the text config is
nested beside that of a vision tower. As the text model of transformers' Qwen3_5MoeForConditionalGeneration computes it.
"""

from collections.abc import Mapping
from typing import Any

from runtime.families.family import Family
from runtime.families.qwen3_next import delta_net_model
from runtime.spec import ModelSpec


def read_spec(config: Mapping[str, Any], source: str) -> ModelSpec:
    """The model that `config` describes. Raises ConfigError naming the value."""
    return delta_net_model(config, source, FAMILY.name, is_grouped=False, renormalises=True)


FAMILY = Family("qwen3_5_moe", ("qwen3_5_moe", "qwen3_5_moe_text"), read_spec, example="nvidia/Qwen3.6-35B-A3B-NVFP4")
