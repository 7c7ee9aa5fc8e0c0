"""Mixture of experts: router, routed experts, gated shared expert, combine. Knows nothing of slots, policy or store."""

from typing import Protocol

from torch import Tensor

from runtime.experts.branches import Branches
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


class DecodeExperts(Protocol):
    """Computes the routed experts of a decode step without asking the host for anything."""

    def run_rows(
        self, layer: int, hidden: Tensor, expert_ids: Tensor, router_logits: Tensor, branches: Branches
    ) -> Tensor:
        """fp32 [R, k, H] of hidden [R, H], expert_ids int64 [R, k], router_logits [R, E]; bits as above."""


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
            gate_up = [weights.read(name(f"shared_expert.{part}")) for part in ("gate_proj", "up_proj")]
            self._shared_in = weights.projection(gate_up, [weights.read(name("shared_expert_gate"))])
            self._shared_down = weights.projection([weights.read(name("shared_expert.down_proj"))])

    def forward(self, hidden: Tensor, experts: RoutedExperts, is_decode: bool) -> Tensor:
        """Block output [N, H] for hidden [N, H]."""
        shared = None if self._moe.shared_intermediate is None else self._shared_expert(hidden)
        logits = self._ops.linear(hidden, self._router)
        expert_ids, weights = self._ops.route(logits, self._moe.num_experts_per_token, self._moe.renormalises)
        rows = experts.run(self._layer, hidden, expert_ids, logits, is_decode)
        combined: Tensor = self._ops.combine_routes(rows, weights, shared)
        return combined

    def decode(self, hidden: Tensor, experts: DecodeExperts, branches: Branches) -> Tensor:
        """The same of one token in each of R sequences; the shared expert forks before the router."""
        shared: Tensor | None = None
        fork = branches.fork("shared") if self._moe.shared_intermediate is not None else None
        # Launched first, for all that follows waits for it: the branch has time.
        logits = self._ops.linear(hidden, self._router)
        if fork is not None:
            with fork:
                shared = self._shared_expert(hidden)
        expert_ids, weights = self._ops.route(logits, self._moe.num_experts_per_token, self._moe.renormalises)
        rows = experts.run_rows(self._layer, hidden, expert_ids, logits, branches)
        if fork is not None:
            branches.join("shared")
        combined: Tensor = self._ops.combine_routes(rows, weights, shared)
        return combined

    def _shared_expert(self, hidden: Tensor) -> Tensor:
        projected = self._ops.linear(hidden, *self._shared_in, is_fork=True)
        output: Tensor = self._ops.silu_linear(projected, True, *self._shared_down[:2])
        return output
