"""Injected routing: which experts each step routes to, by a trace, on the device.

The real router runs too, for its time; only its choice, and the logits that a policy looks at, are replaced.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.benches.traces import PASSED_OVER_LOGIT
from runtime.kernels.ops import Op, Ops


class InjectedRouting:
    """Replaces the router's choice by a trace's, step after step, over and over.

    trace int64 [steps, layers, rows, k]. `begin_step` is launched first in every step. Layers ask in order.
    """

    def __init__(self, trace: NDArray[np.int64], device: torch.device, num_experts: int) -> None:
        self._trace = torch.from_numpy(trace).to(device)
        self._current = self._trace[0].clone()
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        # fp16 holds both values, and the logits of a whole trace are many.
        passed_over = torch.full((*trace.shape[:3], num_experts), PASSED_OVER_LOGIT, dtype=torch.float16, device=device)
        self._logits = passed_over.scatter_(3, self._trace, 0.0)
        self._current_logits = self._logits[0].float()
        self._next_layer = 0

    @property
    def num_steps(self) -> int:
        """Steps until the trace starts again."""
        return len(self._trace)

    def ops(self, ops: Ops) -> Ops:
        """The ops with the router's choice replaced."""
        return replace(ops, route=self._route_of(ops.route), ensure=self._ensure_of(ops.ensure))

    def begin_step(self) -> None:
        """A few small launches: the step's routes and logits, and the step counted on."""
        self._next_layer = 0
        torch.index_select(self._trace, 0, self._step, out=self._current.unsqueeze(0))
        self._current_logits.copy_(self._logits.index_select(0, self._step)[0])
        self._step.add_(1).remainder_(len(self._trace))

    def rewind(self) -> None:
        """Start again at the first step."""
        self._step.zero_()

    def next_layer(self) -> Tensor:
        """What the next layer of the step routes to, int64 [rows, k]."""
        chosen = self._current[self._next_layer]
        self._next_layer += 1
        return chosen

    def logits_of(self, layer: int) -> Tensor:
        """fp32 [rows, experts] for the policy."""
        return self._current_logits[layer]

    def _route_of(self, route: Op) -> Op:
        def injected(logits: Tensor, num_routed: int, renormalises: bool) -> tuple[Tensor, Tensor]:
            _, weights = route(logits, num_routed, renormalises)
            return self.next_layer(), weights

        return injected

    def _ensure_of(self, ensure: Op) -> Op:
        def injected(
            state: Any, policy: str, layer: int, expert_ids: Tensor, router_logits: Tensor, bytes_per_miss: int
        ) -> Any:
            return ensure(state, policy, layer, expert_ids, self.logits_of(layer), bytes_per_miss)

        return injected
