"""Injected routing of whole sequences: each token routes to experts that its sequence used a while ago.

How long ago is drawn so that short distances are as likely as long ones on a log scale, which is what published traces
look like: least recently used with S of 512 slots per layer then hits log S / log 512 of the time, 57 % at 34 and 67 %
at 64. An exponent bends that to the hit rate that is asked for. Two sequences share experts by chance alone.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.experts.branches import Branches
from runtime.families.names import NameMap
from runtime.kernels.ops import Ops, select_ops
from runtime.layers.decoder import Decoder
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.moe import DecodeExperts, RoutedExperts
from runtime.layers.step import DecodeRows, StepInputs
from runtime.spec import ModelSpec

_CALIBRATION_DRAWS = 4000
SEQUENCE_STRIDE = 1499
"""Tokens of the trace between the starts of two sequences: far enough that they share experts by chance alone."""

_ABOVE = 0.1
"""Logits of what is routed lie so far above the router's own largest."""


def reuse_exponent(num_experts: int, num_routed: int, slots_per_layer: float, hit_rate: float) -> float:
    """The exponent by which `hit_rate` of a token's experts are among the `slots_per_layer` used last."""
    low, high = 0.0, 4.0
    for _ in range(20):
        middle = (low + high) / 2
        places = _draw_places(np.random.default_rng(0), _CALIBRATION_DRAWS, num_experts, num_routed, middle)
        if (places < slots_per_layer).mean() < hit_rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def reuse_trace(spec: ModelSpec, num_tokens: int, exponent: float) -> NDArray[np.int16]:
    """int16 [tokens, layers, k], distinct per layer: a random order of recency at first, then as it comes."""
    moe, rng = spec.moe, np.random.default_rng(0)
    recency = np.argsort(rng.random((spec.num_layers, moe.num_experts)), axis=1).astype(np.int16)
    trace = np.empty((num_tokens, spec.num_layers, moe.num_experts_per_token), np.int16)
    for token in range(num_tokens):
        places = _draw_places(rng, spec.num_layers, moe.num_experts, moe.num_experts_per_token, exponent)
        trace[token] = np.take_along_axis(recency, places, 1)
        for order, chosen, used in zip(recency, places, trace[token], strict=True):
            order[len(chosen) :] = np.delete(order, chosen)
            order[: len(chosen)] = used
    return trace


def _draw_places(
    rng: np.random.Generator, num_draws: int, num_experts: int, num_routed: int, exponent: float
) -> NDArray[np.int64]:
    """int64 [draws, k], distinct in a row: places in an order of recency, each with weight (place + 1) ** -exponent."""
    # The k largest of log weight + Gumbel noise are a draw without replacement.
    keys = rng.gumbel(size=(num_draws, num_experts)) - exponent * np.log(np.arange(1, num_experts + 1))
    return np.argpartition(-keys, num_routed - 1, axis=1)[:, :num_routed]


class ReuseRouting:
    """Replaces the router's choice by a trace's. A token's place in it follows from its sequence and its position.

    Sequences start `stride` tokens apart. Everything that decode asks for is computed on the device, from the step's
    own inputs.
    """

    def __init__(
        self, trace: NDArray[np.int16], num_state_rows: int, device: torch.device, stride: int = SEQUENCE_STRIDE
    ) -> None:
        num_tokens, self._num_layers, self._num_routed = trace.shape
        self._trace = torch.from_numpy(trace.reshape(num_tokens, -1)).to(device)
        self._begins = torch.zeros(num_state_rows, dtype=torch.int64, device=device)
        self._stride, self._num_started = stride, 0
        self._chosen: Tensor | None = None
        self._next_layer = 0

    def start_sequence(self, state_row: int) -> None:
        """A new sequence runs in this row: another stretch of the trace."""
        self._begins[state_row].fill_(self._num_started * self._stride % len(self._trace))
        self._num_started += 1

    def begin_step(self, state_rows: Tensor, positions: Tensor) -> None:
        """The next step's tokens: int64 [N] each, on the device."""
        places = (self._begins.index_select(0, state_rows) + positions).remainder_(len(self._trace))
        shape = (len(places), self._num_layers, self._num_routed)
        self._chosen = self._trace.index_select(0, places).view(shape).transpose(0, 1).long().contiguous()
        self._next_layer = 0

    def ops(self, ops: Ops) -> Ops:
        """The ops with the router's choice replaced once a step has begun."""
        route = ops.route

        def injected(logits: Tensor, num_routed: int, renormalises: bool) -> tuple[Tensor, Tensor]:
            expert_ids, weights = route(logits, num_routed, renormalises)
            if self._chosen is None:
                return expert_ids, weights
            chosen = self._chosen[self._next_layer]
            self._next_layer += 1
            # What is routed has the largest logits, for policies that look at them, and few others are near.
            logits.scatter_(1, chosen, (logits.amax(1, keepdim=True) + _ABOVE).expand_as(weights))
            return chosen, weights

        return replace(ops, route=injected)


def routed_decoder(routing: ReuseRouting) -> type[Decoder]:
    """A decoder whose tokens are routed by `routing`."""

    class RoutedDecoder(Decoder):
        def __init__(
            self,
            spec: ModelSpec,
            weights: DenseWeights,
            names: NameMap,
            is_ngram_table_mapped: bool = False,
            ops: Ops | None = None,
        ) -> None:
            ops = routing.ops(ops or select_ops(weights.device))
            super().__init__(spec, weights, names, is_ngram_table_mapped, ops)

        @torch.inference_mode()
        def forward(self, step: StepInputs, pages: PagePool, states: StatePool, experts: RoutedExperts) -> Tensor:
            for segment in step.segments:
                if segment.start == 0:
                    routing.start_sequence(segment.state_row)
            rows = [row for segment in step.segments for row in [segment.state_row] * segment.length]
            routing.begin_step(torch.tensor(rows, device=step.positions.device), step.positions)
            return super().forward(step, pages, states, experts)

        @torch.inference_mode()
        def decode(
            self, rows: DecodeRows, pages: PagePool, states: StatePool, experts: DecodeExperts, branches: Branches
        ) -> Tensor:
            routing.begin_step(rows.state_rows, rows.positions)
            return super().decode(rows, pages, states, experts, branches)

    return RoutedDecoder
