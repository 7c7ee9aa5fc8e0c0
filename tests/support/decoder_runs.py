"""Runs the decoder over token ids: whole, in chunks, token by token, and several sequences in one step."""

from pathlib import Path

import torch
from torch import Tensor

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.checkpoint.expert_source import ExpertSource
from runtime.checkpoint.facts import open_checkpoint
from runtime.checkpoint.matrices import Fp8Matrix, Matrix, PlainMatrix
from runtime.checkpoint.tensors import TensorSource
from runtime.experts.branches import Branches, SerialBranches
from runtime.layers.decoder import Decoder
from runtime.layers.step import DecodeRows, Segment, StepInputs
from runtime.spec import PAGE_TOKENS, ModelSpec
from tests.support.tiny_models import dequantise_nvfp4


class DenseExperts:
    """Routed experts with all weights in fp32: the shortest thing that keeps the protocol."""

    def __init__(self, source: ExpertSource, spec: ModelSpec) -> None:
        self._experts = [
            [source.expert(layer, expert) for expert in range(spec.moe.num_experts)] for layer in range(spec.num_layers)
        ]

    def run(self, layer: int, hidden: Tensor, expert_ids: Tensor, router_logits: Tensor, is_decode: bool) -> Tensor:
        rows = torch.empty(*expert_ids.shape, hidden.shape[1])
        for expert in expert_ids.unique().tolist():
            token, route = (expert_ids == expert).nonzero(as_tuple=True)
            weights = self._experts[layer][expert]
            x = hidden[token]
            gate, up = x @ _dense(weights.gate).t(), x @ _dense(weights.up).t()
            rows[token, route] = (torch.nn.functional.silu(gate) * up) @ _dense(weights.down).t()
        return rows

    def run_rows(
        self, layer: int, hidden: Tensor, expert_ids: Tensor, router_logits: Tensor, branches: Branches
    ) -> Tensor:
        """Row by row, as bits must not depend on the others."""
        rows = [
            self.run(layer, hidden[i : i + 1], expert_ids[i : i + 1], router_logits, True) for i in range(len(hidden))
        ]
        return torch.cat(rows)


def _dense(matrix: Matrix) -> Tensor:
    if isinstance(matrix, PlainMatrix):
        return matrix.values.float()
    if isinstance(matrix, Fp8Matrix):
        spread = matrix.scales.repeat_interleave(128, 1)[:, : matrix.values.shape[1]]
        return matrix.values.view(torch.float8_e4m3fn).float() * spread
    return dequantise_nvfp4(matrix.codes, matrix.scales.view(torch.float8_e4m3fn), matrix.global_scale)


class DecoderRun:
    """A decoder with pools of its own, pages handed out in scattered order."""

    def __init__(
        self,
        folder: Path,
        max_tokens: int = 512,
        num_rows: int = 4,
        is_ngram_table_mapped: bool = False,
        residual_dtype: torch.dtype = torch.float32,
        dtype: torch.dtype = torch.float32,
        kv_dtype: torch.dtype = torch.float32,
        is_fp8: bool = False,
    ) -> None:
        checkpoint = open_checkpoint(folder)
        self.spec = checkpoint.spec
        self.source = TensorSource(checkpoint.files)
        self.decoder = Decoder.build(
            self.spec,
            self.source,
            checkpoint.names,
            "cpu",
            dtype,
            is_ngram_table_mapped,
            residual_dtype=residual_dtype,
            is_fp8=is_fp8,
        )
        self.experts = DenseExperts(ExpertSource(self.source, self.spec, checkpoint.names), self.spec)
        pages_per_row = -(-max_tokens // PAGE_TOKENS)
        self.pages = PagePool(self.spec, pages_per_row * num_rows, "cpu", kv_dtype)
        self.states = StatePool(self.spec, num_rows, "cpu")
        order = torch.randperm(pages_per_row * num_rows, generator=torch.Generator().manual_seed(3))
        self.page_tables = order.view(num_rows, pages_per_row)

    def step(self, parts: list[tuple[int, int, list[int]]], is_decode: bool = False) -> Tensor:
        """One step over (row, start, token ids) parts; logits of all tokens."""
        segments = tuple(Segment(self.page_tables[row], row, start, len(ids)) for row, start, ids in parts)
        token_ids = torch.tensor([token for _, _, ids in parts for token in ids])
        positions = torch.cat([torch.arange(segment.start, segment.end) for segment in segments])
        step = StepInputs(token_ids, positions, segments, torch.arange(len(token_ids)), is_decode)
        return self.decoder.forward(step, self.pages, self.states, self.experts)

    def in_chunks(self, tokens: list[int], chunk_tokens: int, row: int = 0) -> Tensor:
        """Prefill in chunks; logits of all tokens."""
        self.states.reset(row)
        starts = range(0, len(tokens), chunk_tokens)
        return torch.cat([self.step([(row, start, tokens[start : start + chunk_tokens])]) for start in starts])

    def by_decode(self, tokens: list[int], row: int = 0) -> Tensor:
        """Token by token through the decode step; logits of all tokens."""
        self.states.reset(row)
        return torch.cat([self.step([(row, i, [token])], is_decode=True) for i, token in enumerate(tokens)])

    def decode(self, parts: list[tuple[int, int, int]]) -> Tensor:
        """One token in each of some sequences, (row, position, token id), by the step that reads tensors alone."""
        rows, positions, tokens = (torch.tensor(column) for column in zip(*parts, strict=True))
        inputs = DecodeRows(tokens, positions, self.page_tables[rows], rows)
        self.decoder.fetch_ngram_rows(inputs, self.states)
        return self.decoder.decode(inputs, self.pages, self.states, self.experts, SerialBranches())
