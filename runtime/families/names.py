"""Names of a checkpoint's tensors, given the prefix its writer used. Owns no shapes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Projection = Literal["gate_proj", "up_proj", "down_proj"]

PREFIXES = ("model.language_model.", "language_model.model.", "model.", "")
"""Where the text decoder sits, most specific first."""


@dataclass(frozen=True)
class ResidualBlock:
    """Stems of what wraps a block: a gated residual, or in families with pre-norms one norm."""

    hyper_connection: str
    norm: str


MIXER_RESIDUAL = ResidualBlock("attn_hyper_connection", "input_layernorm")
MOE_RESIDUAL = ResidualBlock("mlp_hyper_connection", "post_attention_layernorm")
FINAL_RESIDUAL = ResidualBlock("hyper_connection_mixer", "norm")

_HASH_BUFFERS = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")


@dataclass(frozen=True)
class NameMap:
    """Full tensor names of every part of the text decoder; parts are the suffixes all writers share."""

    prefix: str
    lm_head: str = "lm_head.weight"

    def of_model(self, part: str) -> str:
        """A tensor outside the layers, such as 'embed_tokens.weight'."""
        return f"{self.prefix}{part}"

    def of_layer(self, layer: int, part: str) -> str:
        """A tensor of one layer, such as 'linear_attn.out_proj.weight'."""
        return f"{self.prefix}layers.{layer}.{part}"

    def of_expert(self, layer: int, expert: int, projection: Projection) -> str:
        """Stem of one expert's projection; suffixes such as '.weight' and '.weight_scale' follow."""
        return f"{self.prefix}layers.{layer}.mlp.experts.{expert}.{projection}"

    def of_fused_experts(self, layer: int, bank: Literal["gate_up_proj", "down_proj"]) -> str:
        """All experts of a layer in one tensor."""
        return f"{self.prefix}layers.{layer}.mlp.experts.{bank}"

    def of_ngram_table(self, layer: int) -> str:
        """Stem of an n-gram table: '.weight', '.shard_3.weight' or '.weight_scale' follow."""
        return f"{self.prefix}layers.{layer}.ple.ple_embedding.ngram_embedding"


def detect_names(tensor_names: Iterable[str] | None) -> NameMap:
    """The map whose prefix the given tensor names use; the published layout where none is given or none fits."""
    names = list(tensor_names or ())
    for prefix in PREFIXES:
        if any(name.startswith((f"{prefix}layers.", f"{prefix}embed_tokens.")) for name in names):
            nested = "language_model."
            has_nested_head = any(name.startswith(f"{nested}lm_head.") for name in names)
            return NameMap(prefix, f"{nested}lm_head.weight" if has_nested_head else "lm_head.weight")
    return NameMap(PREFIXES[0])


def is_hash_buffer(name: str) -> bool:
    """Whether a dense tensor is one of the stored integer constants of the n-gram hash."""
    return name.endswith(_HASH_BUFFERS)
