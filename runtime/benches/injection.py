"""Injected routing: which experts each step routes to, made so that a chosen share of them is resident.

The real router runs too, for its time and for the logits that a policy looks at; only its choice is replaced.
"""

from collections import deque
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.experts.policy_lru import LruPolicy
from runtime.experts.slot_cache import EMPTY, SlotCache
from runtime.kernels.ops import Op, Ops
from runtime.spec import ModelSpec

_RECENT_STEPS = 4
"""A hit is an expert that was routed within so many steps, which no policy evicts so soon."""


def hit_rate_trace(spec: ModelSpec, num_steps: int, num_rows: int, hit_rate: float, seed: int = 0) -> NDArray[np.int64]:
    """int64 [steps, layers, rows, k]: of each layer's routes, all distinct, `hit_rate` were routed a few steps before.

    The others were not routed for as long as there are experts left that were not.
    """
    moe, rng = spec.moe, np.random.default_rng(seed)
    num_routes = num_rows * moe.num_experts_per_token
    trace = np.empty((num_steps, spec.num_layers, num_routes), np.int64)
    for layer in range(spec.num_layers):
        recent: deque[NDArray[np.int64]] = deque(maxlen=_RECENT_STEPS)
        last_used = np.full(moe.num_experts, -1, np.int64)
        for step in range(num_steps):
            known = np.unique(np.concatenate(list(recent))) if recent else np.empty(0, np.int64)
            # Fractions carry over from step to step, so that the mean is exact.
            wanted = int((step + 1) * num_routes * hit_rate) - int(step * num_routes * hit_rate)
            hits = rng.choice(known, min(len(known), wanted), replace=False)
            fresh = last_used.astype(np.float64) + rng.random(moe.num_experts)
            fresh[known] = np.inf
            misses = np.argsort(fresh, kind="stable")[: num_routes - len(hits)]
            routed = rng.permutation(np.concatenate((hits, misses)))
            trace[step, layer] = routed
            last_used[routed] = step
            recent.append(routed)
    return trace.reshape(num_steps, spec.num_layers, num_rows, moe.num_experts_per_token)


def fixed_miss_trace(
    spec: ModelSpec, num_slots: int, num_steps: int, num_rows: int, num_missed: int, seed: int = 0
) -> NDArray[np.int64]:
    """int64 [steps, layers, rows, k], distinct per layer: exactly `num_missed` misses per layer and step under lru.

    That holds once the slots are full. Every step's experts differ from the last one's as far as that allows.
    """
    moe, rng = spec.moe, np.random.default_rng(seed)
    cache = SlotCache(
        spec.num_layers, moe.num_experts, num_slots, LruPolicy(spec.num_layers, moe.num_experts),
        num_choices=moe.num_experts_per_token, max_rows=num_rows,
    )  # fmt: skip
    num_routes = num_rows * moe.num_experts_per_token
    no_logits = np.zeros((num_rows, moe.num_experts), np.float32)
    trace = np.empty((num_steps, spec.num_layers, num_rows, moe.num_experts_per_token), np.int64)
    last = np.full((spec.num_layers, num_routes), EMPTY, np.int64)
    for step in range(num_steps):
        for layer in range(spec.num_layers):
            slots = cache.slots_of(layer, np.arange(moe.num_experts))
            resident, absent = np.flatnonzero(slots != EMPTY), np.flatnonzero(slots == EMPTY)
            fresh = np.setdiff1d(resident, last[layer])
            resident = fresh if len(fresh) >= num_routes else resident
            missed = rng.choice(absent, min(max(num_missed, num_routes - len(resident)), len(absent)), replace=False)
            hits = rng.choice(resident, num_routes - len(missed), replace=False)
            last[layer] = rng.permutation(np.concatenate((hits, missed)))
            trace[step, layer] = last[layer].reshape(num_rows, -1)
            cache.ensure(layer, trace[step, layer], no_logits)
    return trace


class InjectedRouting:
    """Replaces the router's choice by a trace's, step after step, over and over; all on the device.

    `begin_step` is launched first in every step. Layers ask in order.
    """

    def __init__(self, trace: NDArray[np.int64], device: torch.device) -> None:
        self._trace = torch.from_numpy(trace).to(device)
        self._current = self._trace[0].clone()
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._next_layer = 0

    def ops(self, ops: Ops) -> Ops:
        """The ops with the router's choice replaced."""
        return replace(ops, route=self._route_of(ops.route))

    def begin_step(self) -> None:
        """Two small launches: the step's routes, and the step counted on."""
        self._next_layer = 0
        torch.index_select(self._trace, 0, self._step, out=self._current.unsqueeze(0))
        self._step.add_(1).remainder_(len(self._trace))

    def rewind(self, step: int = 0) -> None:
        """Start again at a step."""
        self._step.fill_(step)

    def next_layer(self) -> Tensor:
        """What the next layer of the step routes to, int64 [rows, k]."""
        chosen = self._current[self._next_layer]
        self._next_layer += 1
        return chosen

    def _route_of(self, route: Op) -> Op:
        def injected(logits: Tensor, num_routed: int, renormalises: bool) -> tuple[Tensor, Tensor]:
            _, weights = route(logits, num_routed, renormalises)
            return self.next_layer(), weights

        return injected
