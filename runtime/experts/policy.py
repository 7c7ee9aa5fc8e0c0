"""The door of eviction: what a policy is asked, and the table of policies by name.

A policy scores; the slot cache owns the slots, fills empty ones first, pins what is routed in the call and evicts the
lowest score, ties to the lowest slot. A policy's state is per (layer, expert), indexed layer * num_experts + expert,
and survives eviction. All of it is int64 arithmetic, so that a device twin can reproduce every victim.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.errors import UsageError
from runtime.experts.policy_lru import LruPolicy
from runtime.experts.policy_rule import RulePolicy

IntArray = NDArray[np.int64]


class EvictionPolicy(Protocol):
    """Which resident expert goes first."""

    name: str

    def begin_step(self) -> None:
        """One decode step starts, whatever its number of rows."""

    def note_use(self, layer: int, routed: IntArray, expert_ids: IntArray, router_logits: NDArray[np.float32]) -> None:
        """A decode call of `layer` routes to `routed` (int64, ascending, distinct).

        expert_ids [rows, k] are the same experts as each row chose them; router_logits fp32 [rows, num_experts].
        """

    def scores(self, layer: int, owners: IntArray) -> IntArray:
        """One int64 per slot while `layer` runs; owners [slots] are layer * num_experts + expert, or -1 (any score)."""
        ...

    def history(self) -> dict[str, IntArray]:
        """All it knows, by name: int64 [1] or [num_layers * num_experts], its own arrays."""
        ...


def take_history(policy: EvictionPolicy, history: dict[str, IntArray]) -> None:
    """Let a policy know what another of its kind knew. Raises KeyError where the history is of another kind."""
    for name, values in policy.history().items():
        values[:] = history[name]


POLICIES: dict[str, Callable[[int, int], EvictionPolicy]] = {"lru": LruPolicy, "rule": RulePolicy}
"""By name: a function of (num_layers, num_experts)."""


def make_policy(name: str, num_layers: int, num_experts: int) -> EvictionPolicy:
    """Raises UsageError naming the policies there are."""
    if name not in POLICIES:
        raise UsageError(f"there is no eviction policy '{name}'; choose one of {', '.join(sorted(POLICIES))}")
    return POLICIES[name](num_layers, num_experts)
