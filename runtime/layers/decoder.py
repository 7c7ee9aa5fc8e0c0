"""The decoder: embedding; layers of {delta net | sparse attention} and experts in gated residuals; final mixer.

Built from a `ModelSpec`; holds dense weights only. Sequence state is in the pools, routed experts behind a protocol.
"""

import torch
from torch import Tensor
from torch.nn import functional

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.checkpoint.tensors import TensorSource
from runtime.families.names import NameMap
from runtime.kernels.ops import Ops, select_ops
from runtime.layers.attention_plan import AttentionPlan, RotaryTable
from runtime.layers.delta_net import DeltaNet
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.hyper_connection import HyperConnection
from runtime.layers.moe import MoeBlock, RoutedExperts
from runtime.layers.ngram_embedding import NgramEmbedding, step_contexts
from runtime.layers.sparse_attention import SparseAttention
from runtime.layers.step import StepInputs
from runtime.spec import ModelSpec


class DecoderLayer:
    """One layer: optional n-gram embedding, mixer, experts, each mixer and experts inside a gated residual."""

    def __init__(
        self, spec: ModelSpec, weights: DenseWeights, names: NameMap, layer: int, ops: Ops, is_table_mapped: bool
    ) -> None:
        self.ngram: NgramEmbedding | None = None
        if spec.ngram is not None and layer in spec.ngram.layer_indices:
            self.ngram = NgramEmbedding(spec, weights, names, layer, ops, is_table_mapped)
        self.mixer: DeltaNet | SparseAttention
        if spec.layer_kinds[layer] == "linear_attention":
            self.mixer = DeltaNet(spec, weights, names, layer, ops)
        else:
            self.mixer = SparseAttention(spec, weights, names, layer, ops)
        self.mixer_residual = HyperConnection(spec, weights, names.of_layer(layer, "attn_hyper_connection"), ops)
        self.moe = MoeBlock(spec, weights, names, layer, ops)
        self.moe_residual = HyperConnection(spec, weights, names.of_layer(layer, "mlp_hyper_connection"), ops)


class Decoder:
    """Dense weights of one model. `dense_bytes` counts them, `ngram_table_bytes` the n-gram tables beside them."""

    def __init__(
        self, spec: ModelSpec, weights: DenseWeights, names: NameMap, is_ngram_table_mapped: bool = False
    ) -> None:
        self.spec = spec
        self._ops = select_ops(weights.device)
        self._embedding = weights.matrix(names.of_model("embed_tokens.weight"))
        self._head = self._embedding if spec.ties_embeddings else weights.matrix(names.lm_head)
        rotary_dims = spec.attention.rotary_dims
        exponents = torch.arange(0, rotary_dims, 2, dtype=torch.float32, device=weights.device) / rotary_dims
        self._inverse_frequencies = 1.0 / spec.attention.rope_theta**exponents
        self.layers = [
            DecoderLayer(spec, weights, names, layer, self._ops, is_ngram_table_mapped)
            for layer in range(spec.num_layers)
        ]
        stem = names.of_model("hyper_connection_mixer")
        self._final_mixer = HyperConnection(spec, weights, stem, self._ops, has_inject=False)
        self.dense_bytes = weights.num_bytes
        self.ngram_table_bytes = sum(layer.ngram.table.num_bytes for layer in self.layers if layer.ngram is not None)

    @classmethod
    @torch.inference_mode()
    def build(
        cls,
        spec: ModelSpec,
        source: TensorSource,
        names: NameMap,
        device: torch.device | str,
        dtype: torch.dtype,
        is_ngram_table_mapped: bool = False,
    ) -> "Decoder":
        """Read and convert all dense weights. Raises CheckpointError naming what can't be used.

        A mapped n-gram table stays in the checkpoint's file and its rows are read as they are needed.
        """
        return cls(spec, DenseWeights(source, torch.device(device), dtype), names, is_ngram_table_mapped)

    @torch.inference_mode()
    def forward(self, step: StepInputs, pages: PagePool, states: StatePool, experts: RoutedExperts) -> Tensor:
        """Logits fp32 [M, vocab] at `step.logit_rows`; moves the state of every segment on by its tokens."""
        assert self.spec.hyper_connection is not None
        residual = self._embedding[step.token_ids].repeat(1, self.spec.hyper_connection.num_streams)
        contexts = step_contexts(self.spec, step, states, self._ops)
        rotary = self._ops.rotary_table(step.positions, self._inverse_frequencies)
        plans = tuple(
            AttentionPlan.build(segment, self.spec.indexer, self._inverse_frequencies, self._ops)
            for segment in step.segments
        )
        for layer in self.layers:
            if layer.ngram is not None and contexts is not None:
                layer.ngram.add_to(residual, contexts, step, states)
            hidden, inject = layer.mixer_residual.mix(residual)
            output = self._mix_tokens(layer.mixer, hidden, step, plans, rotary, pages, states)
            layer.mixer_residual.inject(residual, output, inject)
            hidden, inject = layer.moe_residual.mix(residual)
            layer.moe_residual.inject(residual, layer.moe.forward(hidden, experts, step.is_decode), inject)
        return self._logits(residual[step.logit_rows])

    def _logits(self, residual: Tensor) -> Tensor:
        if residual.shape[0] == 0:
            return torch.empty((0, self.spec.vocab_size), dtype=torch.float32, device=residual.device)
        hidden, _ = self._final_mixer.mix(residual)
        return functional.linear(hidden, self._head).float()

    def _mix_tokens(
        self,
        mixer: DeltaNet | SparseAttention,
        hidden: Tensor,
        step: StepInputs,
        plans: tuple[AttentionPlan, ...],
        rotary: RotaryTable,
        pages: PagePool,
        states: StatePool,
    ) -> Tensor:
        if isinstance(mixer, DeltaNet):
            return mixer.forward(hidden, step, states)
        return mixer.forward(hidden, plans, rotary, pages, states)
