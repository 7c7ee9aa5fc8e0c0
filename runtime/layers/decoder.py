"""The decoder: embedding; layers of {delta net | attention} and experts, each in a residual; final norm or mixer.

Built from a `ModelSpec`; holds dense weights only. Sequence state is in the pools, routed experts behind a protocol.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.checkpoint.tensors import TensorSource
from runtime.experts.branches import Branches
from runtime.families.names import FINAL_RESIDUAL, MIXER_RESIDUAL, MOE_RESIDUAL, NameMap
from runtime.kernels.ops import Ops, select_ops
from runtime.kernels.torch_ops.ngram import context_rows
from runtime.layers.attention import Attention
from runtime.layers.attention_plan import AttentionPlan
from runtime.layers.delta_net import DeltaNet
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.moe import DecodeExperts, MoeBlock, RoutedExperts
from runtime.layers.ngram_embedding import NgramEmbedding, row_contexts, step_contexts
from runtime.layers.projection import Projection
from runtime.layers.residual import ResidualStream, residual_of
from runtime.layers.rotary import Rotary, RotaryTable
from runtime.layers.step import DecodeRows, StepInputs
from runtime.spec import ModelSpec


class DecoderLayer:
    """One layer: optional n-gram embedding, mixer, experts, each mixer and experts inside a residual of its own."""

    def __init__(
        self, spec: ModelSpec, weights: DenseWeights, names: NameMap, layer: int, ops: Ops, is_table_mapped: bool
    ) -> None:
        self.ngram: NgramEmbedding | None = None
        if spec.ngram is not None and layer in spec.ngram.layer_indices:
            self.ngram = NgramEmbedding(spec, weights, names, layer, ops, is_table_mapped)
        self.mixer: DeltaNet | Attention
        if spec.layer_kinds[layer] == "linear_attention":
            self.mixer = DeltaNet(spec, weights, names, layer, ops)
        else:
            self.mixer = Attention(spec, weights, names, layer, ops)
        self.mixer_residual = residual_of(spec, weights, MIXER_RESIDUAL, names.of_layer(layer, ""), ops)
        self.moe = MoeBlock(spec, weights, names, layer, ops)
        self.moe_residual = residual_of(spec, weights, MOE_RESIDUAL, names.of_layer(layer, ""), ops)


@dataclass(frozen=True)
class _Chunk:
    """What one chunk needs in every layer; `residual` [N, S*H] is changed by each."""

    step: StepInputs
    residual: Tensor
    contexts: Tensor | None
    plans: tuple[AttentionPlan, ...]
    rotary: RotaryTable


class Decoder:
    """Dense weights of one model. `dense_bytes` counts them, `ngram_table_bytes` the n-gram tables beside them."""

    def __init__(
        self,
        spec: ModelSpec,
        weights: DenseWeights,
        names: NameMap,
        is_ngram_table_mapped: bool = False,
        ops: Ops | None = None,
    ) -> None:
        self.spec = spec
        self._ops = ops or select_ops(weights.device)
        self._dtype, self._residual_dtype = weights.compute_dtype, weights.residual_compute_dtype
        self._embedding = weights.matrix(names.of_model("embed_tokens.weight"))
        self._head = Projection(self._embedding)
        if not spec.ties_embeddings:
            self._head = weights.projection([weights.read(names.lm_head)])
        weights.source.release_pages()
        self._rotary = Rotary.of(spec.attention, weights.device)
        self._fetches_ngram_rows = False
        self.layers: list[DecoderLayer] = []
        for layer in range(spec.num_layers):
            self.layers.append(DecoderLayer(spec, weights, names, layer, self._ops, is_ngram_table_mapped))
            # What was read must not pile up beside its copies.
            weights.source.release_pages()
        self._final_mixer = residual_of(spec, weights, FINAL_RESIDUAL, names.of_model(""), self._ops)
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
        on_kept: Callable[[int], None] = lambda num_bytes: None,
        residual_dtype: torch.dtype | None = None,
        ops: Ops | None = None,
        is_fp8: bool = False,
    ) -> "Decoder":
        """Read and convert all dense weights, telling `on_kept` the bytes held so far; it may raise to cancel.

        Raises CheckpointError naming what can't be used.
        A mapped n-gram table stays in the checkpoint's file and its rows are read as they are needed.
        `residual_dtype` is that of residual streams, hyper-connections and delta nets; None: `dtype`. `ops` None: those
        of the device. `is_fp8` makes e4m3 of what loses little by it.
        """
        weights = DenseWeights(
            source, torch.device(device), dtype, spec.norm_adds_one, on_kept, residual_dtype or dtype, is_fp8
        )
        return cls(spec, weights, names, is_ngram_table_mapped, ops)

    @torch.inference_mode()
    def forward(self, step: StepInputs, pages: PagePool, states: StatePool, experts: RoutedExperts) -> Tensor:
        """Logits fp32 [M, vocab] at `step.logit_rows`; moves the state of every segment on by its tokens."""
        return self.forward_chunks((step,), pages, states, experts)

    @torch.inference_mode()
    def forward_chunks(
        self,
        steps: tuple[StepInputs, ...],
        pages: PagePool,
        states: StatePool,
        experts: RoutedExperts,
        before: Callable[[StepInputs], None] = lambda step: None,
    ) -> Tensor:
        """The same, in every bit, of steps that follow each other, each layer done with all of them before the next
        begins: so a layer's experts are wanted once. `before` is called with each in each layer, and may raise."""
        chunks = [self._begin(step, states) for step in steps]
        for layer in self.layers:
            for chunk in chunks:
                before(chunk.step)
                self._run_layer(layer, chunk, pages, states, experts)
        logits = [self._logits(chunk.residual[chunk.step.logit_rows]) for chunk in chunks]
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _begin(self, step: StepInputs, states: StatePool) -> _Chunk:
        residual = self._embed(step.token_ids)
        contexts = step_contexts(self.spec, step, states, self._ops)
        for layer in self.layers:
            if layer.ngram is not None and contexts is not None:
                layer.ngram.announce(contexts)
        rotary = self._rotary.table(step.positions, self._ops)
        plans = tuple(
            AttentionPlan.build(segment, self.spec.indexer, self._rotary, self._ops) for segment in step.segments
        )
        return _Chunk(step, residual, contexts, plans, rotary)

    def _run_layer(
        self, layer: DecoderLayer, chunk: _Chunk, pages: PagePool, states: StatePool, experts: RoutedExperts
    ) -> None:
        """Move a chunk's residual, and the state of its segments, on by one layer."""
        step, residual = chunk.step, chunk.residual
        if layer.ngram is not None and chunk.contexts is not None:
            layer.ngram.add_to(residual, chunk.contexts, step, states)
        hidden, inject = layer.mixer_residual.mix(residual)
        output = self._mix_tokens(layer.mixer, hidden, step, chunk.plans, chunk.rotary, pages, states)
        layer.mixer_residual.inject(residual, output, inject)
        hidden, inject = layer.moe_residual.mix(residual)
        output = layer.moe.forward(hidden.to(self._dtype), experts, step.is_decode)
        layer.moe_residual.inject(residual, output, inject)

    @torch.inference_mode()
    def decode(
        self, rows: DecodeRows, pages: PagePool, states: StatePool, experts: DecodeExperts, branches: Branches
    ) -> Tensor:
        """Logits fp32 [R, vocab] of one token in each of R sequences; moves their states on.

        Launches the same work whatever the inputs hold, and never waits for it. A row's bits don't depend on R.
        """
        stream = ResidualStream(self._embed(rows.token_ids))
        contexts = row_contexts(self.spec, rows, states, self._ops)
        rotary, block_rotary = self._rotary.table(rows.positions, self._ops), None
        if self.spec.indexer is not None:
            block_rotary = self._rotary.table(rows.positions - (self.spec.indexer.block_tokens - 1), self._ops)
        for layer in self.layers:
            if layer.ngram is not None and contexts is not None:
                layer.ngram.add_rows_to(stream.settled(), contexts, rows, states)
            hidden, inject = stream.mix(layer.mixer_residual)
            if isinstance(layer.mixer, DeltaNet):
                output = layer.mixer.decode(hidden, rows, states)
            else:
                output = layer.mixer.decode(hidden.to(self._dtype), rows, rotary, block_rotary, pages, states)
            stream.inject(layer.mixer_residual, output, inject)
            hidden, inject = stream.mix(layer.moe_residual)
            output = layer.moe.decode(hidden.to(self._dtype), experts, branches)
            stream.inject(layer.moe_residual, output, inject)
        return self._head_logits(stream.mix(self._final_mixer)[0])

    @property
    def fetches_ngram_rows(self) -> bool:
        """`fetch_ngram_rows` must be called before every decode step."""
        return self._fetches_ngram_rows and self.spec.ngram is not None

    def keep_ngram_rows(self, max_rows: int) -> None:
        """Decode steps read n-gram rows that `fetch_ngram_rows` brings before each: for tables that stay in a file."""
        for layer in self.layers:
            if layer.ngram is not None:
                layer.ngram.keep_rows(max_rows)
                self._fetches_ngram_rows = True

    def fetch_ngram_rows(self, rows: DecodeRows, states: StatePool) -> None:
        """Bring what the step over `rows` will read of mapped n-gram tables; waits for the device and the file."""
        if not self.fetches_ngram_rows or self.spec.ngram is None:
            return
        history = states.last_ids.index_select(0, rows.state_rows).cpu()
        contexts = context_rows(
            history, rows.token_ids.cpu(), torch.arange(rows.num_rows), self.spec.ngram.break_token_id
        )
        for layer in self.layers:
            if layer.ngram is not None:
                layer.ngram.fetch_rows(contexts)

    def _embed(self, token_ids: Tensor) -> Tensor:
        """Residual [N, S*H]: the embedding in every stream."""
        num_streams = self.spec.residual_width // self.spec.hidden_size
        return self._embedding[token_ids].to(self._residual_dtype).repeat(1, num_streams)

    def _logits(self, residual: Tensor) -> Tensor:
        if residual.shape[0] == 0:
            return torch.empty((0, self.spec.vocab_size), dtype=torch.float32, device=residual.device)
        return self._head_logits(self._final_mixer.mix(residual)[0])

    def _head_logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._ops.linear(hidden.to(self._dtype), *self._head)
        return logits.float()

    def _mix_tokens(
        self,
        mixer: DeltaNet | Attention,
        hidden: Tensor,
        step: StepInputs,
        plans: tuple[AttentionPlan, ...],
        rotary: RotaryTable,
        pages: PagePool,
        states: StatePool,
    ) -> Tensor:
        if isinstance(mixer, DeltaNet):
            return mixer.forward(hidden, step, states)
        return mixer.forward(hidden.to(self._dtype), plans, rotary, pages, states)
