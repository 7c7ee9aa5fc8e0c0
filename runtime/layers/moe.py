"""Mixture of experts: router, routed experts, gated shared expert, combine. Knows nothing of slots, policy or store."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from runtime.families.names import NameMap
from runtime.kernels.ops import Ops
from runtime.layers.dense_weights import DenseWeights
from runtime.spec import ModelSpec


class RoutedExperts(Protocol):
    """Computes routed experts, wherever their weights are."""

    def run(self, layer: int, hidden: Tensor, expert_ids: Tensor, router_logits: Tensor, is_decode: bool) -> Tensor:
        """Each route's own output, unweighted: fp32 [N, k, H].

        hidden [N, H], expert_ids int64 [N, k], router_logits [N, E]. Bits depend on hidden and weights only, never on
        where an expert was found.
        """


class MoeBlock:
    """One layer's router and shared expert."""

    def __init__(self, spec: ModelSpec, weights: DenseWeights, names: NameMap, layer: int, ops: Ops) -> None:
        self._ops = ops
        self._moe = spec.moe
        self._layer = layer

        def name(part: str) -> str:
            return names.of_layer(layer, f"mlp.{part}.weight")

        self._router = weights.matrix(name("gate"))
        if spec.moe.shared_intermediate is not None:
            shared_parts = ("shared_expert.gate_proj", "shared_expert.up_proj", "shared_expert_gate")
            self._shared_in = weights.matrix(*(name(part) for part in shared_parts))
            self._shared_down = weights.matrix(name("shared_expert.down_proj"))

    def forward(self, hidden: Tensor, experts: RoutedExperts, is_decode: bool) -> Tensor:
        """Block output [N, H] for hidden [N, H]."""
        width = self._moe.shared_intermediate
        shared = None if width is None else self._shared_expert(hidden, width)
        logits = functional.linear(hidden, self._router)
        expert_ids, weights = self._ops.route(logits, self._moe.num_experts_per_token, self._moe.renormalises)
        rows = experts.run(self._layer, hidden, expert_ids, logits, is_decode)
        combined: Tensor = self._ops.combine_routes(rows, weights)
        return combined if shared is None else combined.add_(shared)

    def _shared_expert(self, hidden: Tensor, width: int) -> Tensor:
        gate, up, output_gate = functional.linear(hidden, self._shared_in).tensor_split((width, 2 * width), dim=-1)
        return functional.linear(functional.silu(gate).mul_(up), self._shared_down).mul_(torch.sigmoid(output_gate))
