"""n-gram per-layer embedding: hashed n-grams of the input ids, gated into every residual stream.

The table stays as stored (bf16, fp16, fp32, fp8 with one scale, or NVFP4), in host memory, and is read row by row.
"""

import torch
from torch import Tensor

from runtime.cache.state_pool import StatePool
from runtime.checkpoint.files import TensorEntry
from runtime.checkpoint.inventory import ngram_shards
from runtime.checkpoint.matrices import read_multiplier
from runtime.checkpoint.scattered_rows import ScatteredRows
from runtime.checkpoint.tensors import TORCH_DTYPES, TensorSource
from runtime.errors import CheckpointError
from runtime.experts.pinning import page_aligned, pin
from runtime.families.names import NameMap
from runtime.families.ngram_hash import NgramHash, ngram_hash
from runtime.kernels.ops import Ops, select_ops
from runtime.kernels.torch_ops import nvfp4
from runtime.kernels.torch_ops.ngram import ngram_ids
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.step import DecodeRows, StepInputs
from runtime.spec import ModelSpec


class NgramTable:
    """The rows of one layer's table, in one copy or read from the checkpoint's files as they are needed."""

    def __init__(
        self, source: TensorSource, stem: str, device: torch.device, is_mapped: bool, ops: Ops | None = None
    ) -> None:
        self._ops, self.is_mapped = ops or select_ops(device), is_mapped
        shards = ngram_shards(source.files, stem)
        self._kind, self._dtype = shards[0].kind, TORCH_DTYPES[shards[0].values.dtype]
        lookup_device = torch.device("cpu") if is_mapped else device
        self._multipliers = torch.tensor(
            [1.0 if shard.kind == "plain" else read_multiplier(source, shard) for shard in shards],
            device=lookup_device,
        )
        rows_per_shard = torch.tensor([shard.values.shape[0] for shard in shards], device=lookup_device)
        self._first_rows = rows_per_shard.cumsum(0) - rows_per_shard
        # Each shard is one or two matrices of bytes: values, and for NVFP4 block scales. Moved as bytes, because not
        # every device and version can gather fp8.
        scales = [shard.scales for shard in shards if shard.scales and shard.kind == "nvfp4"]
        parts = [entries for entries in ([shard.values for shard in shards], scales) if entries]
        self._on_disk = [ScatteredRows(entries) for entries in parts] if is_mapped else []
        self._matrices = [] if is_mapped else [_joined(source, entries, device) for entries in parts]
        if device.type == "cuda":
            pin((matrix for matrix in self._matrices if not matrix.is_cuda), self)
        self.num_bytes = sum(matrix.nbytes for matrix in self._matrices)
        self.num_bytes += sum(rows.num_bytes for rows in self._on_disk)

    def gather(self, row_ids: Tensor) -> Tensor:
        """Rows fp32 [*row_ids, head_dim], where the ids are, int64 of any shape. The host reads a mapped table."""
        flat = row_ids.reshape(-1).cpu() if self.is_mapped else row_ids.reshape(-1)
        if self.is_mapped:
            rows = [part.read(flat.tolist()) for part in self._on_disk]
        else:
            rows = [self._ops.gather_rows(matrix, flat) for matrix in self._matrices]
        if self._kind == "nvfp4":
            values = nvfp4.unscaled_values(rows[0], rows[1])
        else:
            values = rows[0].view(self._dtype).to(torch.float32)
        if self._kind != "plain":
            shard_of_row = torch.bucketize(flat, self._first_rows.to(flat.device), right=True) - 1
            values.mul_(self._multipliers.to(flat.device)[shard_of_row].unsqueeze(1))
        return values.view(*row_ids.shape, -1).to(row_ids.device)

    def announce(self, row_ids: Tensor) -> None:
        """These rows will be gathered next: the system begins to read those of a mapped table, all at once."""
        if self.is_mapped:
            rows = row_ids.reshape(-1).tolist()
            for part in self._on_disk:
                part.announce(rows)


def _joined(source: TensorSource, entries: list[TensorEntry], device: torch.device) -> Tensor:
    """One matrix of all shards, where it was drawn or in host memory, which a GPU reads where it lies."""
    stored = [source.get(entry.name).view(torch.uint8) for entry in entries]
    if stored[0].is_cuda:
        return torch.cat(stored)
    joined = page_aligned(sum(matrix.shape[0] for matrix in stored), stored[0].shape[1])
    for entry, matrix, rows in zip(entries, stored, joined.split([len(matrix) for matrix in stored]), strict=True):
        for source_piece, target in source.pieces(entry, matrix, rows):
            target.copy_(source_piece)
    return joined


class NgramEmbedding:
    """One layer's weights; `index` is its row among the model's n-gram layers in the state pool."""

    def __init__(
        self, spec: ModelSpec, weights: DenseWeights, names: NameMap, layer: int, ops: Ops, is_table_mapped: bool
    ) -> None:
        assert spec.ngram is not None
        assert spec.hyper_connection is not None
        self._ops = ops
        self._eps = spec.rms_norm_eps
        self._dilation = spec.ngram.ngram_size
        self._num_streams = spec.hyper_connection.num_streams
        self._residual_width = spec.residual_width
        self.index = spec.ngram.layer_indices.index(layer)

        def name(part: str) -> str:
            return names.of_layer(layer, f"ple.{part}")

        constants = ngram_hash(spec.ngram, spec.vocab_size, self.index)
        _check_hash_buffers(weights.source, name("ple_embedding."), constants)
        self._multipliers = torch.tensor(constants.multipliers, device=weights.device)
        self._head_sizes = torch.tensor(constants.head_sizes, device=weights.device)
        self._head_offsets = torch.tensor(constants.head_offsets, device=weights.device)
        self.table = NgramTable(weights.source, names.of_ngram_table(layer), weights.device, is_table_mapped, ops)
        self._kept_rows: Tensor | None = None
        self._key_value = weights.matrix(name("key_proj.weight"), name("value_proj.weight"))
        self._norm_key = weights.norm_scale(name("norm_key.weight"), self._num_streams)
        self._norm_query = weights.norm_scale(name("norm_query.weight"), self._num_streams)
        self._norm_conv = weights.norm_scale(name("norm_conv.weight"), self._num_streams)
        self._conv = weights.conv(name("conv1d.weight"))

    def announce(self, contexts: Tensor) -> None:
        """Have a mapped table's rows for contexts int64 [n, N] read while the layers before this one run."""
        if self.table.is_mapped:
            constants = self._multipliers, self._head_sizes, self._head_offsets
            self.table.announce(self._ops.ngram_ids(contexts, *constants))

    def add_to(self, residual: Tensor, contexts: Tensor, step: StepInputs, states: StatePool) -> None:
        """Add the embedding of contexts int64 [n, N] to residual [N, S*H] in place; moves convolution state on."""
        normed = self._add_gated(residual, contexts)
        for segment, span in step.spans:
            history = states.ngram_conv[self.index, segment.state_row]
            residual[span].add_(self._ops.causal_conv(normed[span], history, self._conv, self._dilation))
            if segment.save_row is not None:
                states.ngram_conv[self.index, segment.save_row].copy_(history)

    def add_rows_to(self, residual: Tensor, contexts: Tensor, rows: DecodeRows, states: StatePool) -> None:
        """The same of one token in each of R sequences."""
        normed, pool = self._add_gated(residual, contexts, self._kept_rows), states.ngram_conv[self.index]
        residual.add_(self._ops.conv_rows(normed, pool, rows.state_rows, self._conv, self._dilation))

    def keep_rows(self, max_rows: int) -> None:
        """Decode steps read from now on what `fetch_rows` brought: a graph can't read a mapped table."""
        width = self._key_value.shape[1]
        self._kept_rows = torch.zeros(max_rows, width, device=self._key_value.device)

    def fetch_rows(self, contexts: Tensor) -> None:
        """Read the table for contexts int64 [n, R], on the host, before the step that needs it is launched."""
        if self._kept_rows is None:
            return
        constants = (part.cpu() for part in (self._multipliers, self._head_sizes, self._head_offsets))
        row_ids = ngram_ids(contexts, *constants)
        self.table.announce(row_ids)
        rows = self.table.gather(row_ids)
        self._kept_rows[: contexts.shape[1]].copy_(rows.view(contexts.shape[1], -1))

    def _add_gated(self, residual: Tensor, contexts: Tensor, kept_rows: Tensor | None = None) -> Tensor:
        """Add the gated embedding to residual [N, S*H] in place; returns what the convolution reads."""
        ops, num_rows = self._ops, residual.shape[0]
        if kept_rows is None:
            ids = ops.ngram_ids(contexts, self._multipliers, self._head_sizes, self._head_offsets)
            embedded = self.table.gather(ids).view(num_rows, -1)
        else:
            embedded = kept_rows[:num_rows]
        keys, value = ops.linear(embedded, self._key_value).tensor_split((self._residual_width,), dim=-1)
        streams = residual.view(num_rows, self._num_streams, -1)
        keys = ops.rms_norm(keys.view(streams.shape), self._norm_key, self._eps)
        gate = ops.ngram_gate(keys, ops.rms_norm(streams, self._norm_query, self._eps))
        gated = gate * value.unsqueeze(1)
        normed: Tensor = ops.rms_norm(gated, self._norm_conv, self._eps).view(residual.shape)
        residual.add_(gated.view(residual.shape))
        return normed


def step_contexts(spec: ModelSpec, step: StepInputs, states: StatePool, ops: Ops) -> Tensor | None:
    """n-gram contexts int64 [n, N] of all tokens of a step; moves each sequence's last ids on. None without n-grams."""
    if spec.ngram is None:
        return None
    contexts = []
    for segment, span in step.spans:
        last_ids, token_ids = states.last_ids[segment.state_row], step.token_ids[span]
        contexts.append(ops.ngram_contexts(last_ids, token_ids, spec.ngram.break_token_id))
        last_ids.copy_(torch.cat((last_ids, token_ids))[-last_ids.shape[0] :])
        if segment.save_row is not None:
            states.last_ids[segment.save_row].copy_(last_ids)
    return contexts[0] if len(contexts) == 1 else torch.cat(contexts, dim=1)


def row_contexts(spec: ModelSpec, rows: DecodeRows, states: StatePool, ops: Ops) -> Tensor | None:
    """The same int64 [n, R] of one token in each of R sequences."""
    if spec.ngram is None:
        return None
    contexts: Tensor = ops.context_rows(states.last_ids, rows.token_ids, rows.state_rows, spec.ngram.break_token_id)
    return contexts


def _check_hash_buffers(source: TensorSource, stem: str, constants: NgramHash) -> None:
    expected = {
        "layer_multipliers": constants.multipliers,
        "ngram_heads_vocab_sizes": constants.head_sizes,
        "ngram_heads_offsets": constants.head_offsets,
    }
    for part, values in expected.items():
        if tuple(source.get(f"{stem}{part}").tolist()) != values:
            file = source.files.find(f"{stem}{part}").file
            raise CheckpointError(
                f"{file}: tensor {stem}{part} differs from what config.json gives (seed, vocab_size or ple_layer_ids); "
                "the weights and config.json belong to different models, download both again"
            )
