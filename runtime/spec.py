"""What a model is: the shapes and choices that decide its math, its names and its memory. Data only, no torch.

A family reads config.json into a `ModelSpec`; layers, budget and checkpoint reader take everything from it.
Layer indices count from 0, sizes are elements unless the name ends in `_bytes` or `_tokens`.
"""

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["linear_attention", "full_attention", "sparse_attention"]
ExpertFormat = Literal["nvfp4", "fp8", "bf16", "fp16", "fp32"]

PAGE_TOKENS = 64
"""Tokens in one KV page."""


@dataclass(frozen=True)
class YarnSpec:
    """YaRN (arXiv 2309.00071): slow rotary frequencies are divided by `factor`, cos and sin multiplied by
    `attention_factor`; the borders are frequencies that turn `beta_fast` and `beta_slow` times in `original_tokens`."""

    factor: float
    original_tokens: int
    attention_factor: float
    beta_fast: float
    beta_slow: float
    truncates: bool
    """Whether the borders are rounded outwards to whole dims."""


@dataclass(frozen=True)
class AttentionSpec:
    """Softmax attention with grouped KV heads; `rotary_dims` leading dims of each head are rotated."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dims: int
    rope_theta: float
    has_output_gate: bool
    yarn: YarnSpec | None = None


@dataclass(frozen=True)
class IndexerSpec:
    """The sparse attention's indexer: one key per `block_tokens`, at most `budget_tokens` selected (plus the tail)."""

    num_heads: int
    head_dim: int
    budget_tokens: int
    block_tokens: int

    @property
    def budget_blocks(self) -> int:
        return self.budget_tokens // self.block_tokens


@dataclass(frozen=True)
class DeltaNetSpec:
    """Gated delta net; value head r reads key head r // (num_value_heads // num_key_heads)."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    gate_activation: Literal["sigmoid", "silu"]
    is_grouped: bool = False
    """Whether the checkpoint has in_proj_qkvz and in_proj_ba, rows grouped by key head, where others have four."""

    @property
    def conv_channels(self) -> int:
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim


@dataclass(frozen=True)
class MoeSpec:
    """Routed experts with an optional shared expert (None where the family has none)."""

    num_experts: int
    num_experts_per_token: int
    intermediate: int
    shared_intermediate: int | None
    renormalises: bool


@dataclass(frozen=True)
class HyperConnectionSpec:
    """Gated residual over `num_streams` copies of the hidden state."""

    num_streams: int
    lowrank: int


@dataclass(frozen=True)
class NgramSpec:
    """n-gram per-layer embedding at `layer_indices`; `break_token_id` ends an n-gram's context."""

    layer_indices: tuple[int, ...]
    embed_dim: int
    conv_kernel: int
    ngram_size: int
    heads_per_ngram: int
    vocab_size_base: int
    vocab_divisor: int
    num_shards: int
    seed: int
    break_token_id: int

    @property
    def num_heads(self) -> int:
        return (self.ngram_size - 1) * self.heads_per_ngram

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads


@dataclass(frozen=True)
class WeightFacts:
    """How many bytes the weights take once loaded, and in which format the experts are."""

    expert_format: ExpertFormat
    """Of most layers."""
    record_bytes: int
    """Of one expert; the largest where layers differ."""
    dense_params: int
    ngram_table_bytes: int
    checkpoint_bytes: int
    layer_formats: tuple[ExpertFormat, ...] = ()
    """Format of each layer's experts; empty: all layers have `expert_format`."""

    def format_of(self, layer: int) -> ExpertFormat:
        """Format of one layer's experts."""
        return self.layer_formats[layer] if self.layer_formats else self.expert_format


@dataclass(frozen=True)
class ModelSpec:
    """One model, complete for text. `eos_token_ids` are the stop ids of chat, config order first."""

    family: str
    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    layer_kinds: tuple[LayerKind, ...]
    rms_norm_eps: float
    attention: AttentionSpec
    indexer: IndexerSpec | None
    delta_net: DeltaNetSpec | None
    moe: MoeSpec
    hyper_connection: HyperConnectionSpec | None
    ngram: NgramSpec | None
    ties_embeddings: bool
    norm_adds_one: bool
    """Whether an RMS norm multiplies by 1 + weight or by the weight itself."""
    max_context_tokens: int
    eos_token_ids: tuple[int, ...]
    weights: WeightFacts

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Layers that keep KV, in order; position in this tuple is the layer's row in a page pool."""
        return tuple(i for i, kind in enumerate(self.layer_kinds) if kind != "linear_attention")

    @property
    def delta_net_layers(self) -> tuple[int, ...]:
        """Layers that keep recurrent state, in order; position in this tuple is the layer's row in a state pool."""
        return tuple(i for i, kind in enumerate(self.layer_kinds) if kind == "linear_attention")

    @property
    def residual_width(self) -> int:
        """Width of the residual: hidden size times the number of streams."""
        return self.hidden_size * (self.hyper_connection.num_streams if self.hyper_connection else 1)
