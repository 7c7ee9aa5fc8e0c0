"""`belady`: the expert whose next use is farthest away goes first. It knows the future, so only a replay can have it.

No policy that evicts on demand misses less (L. A. Belady, 1966); it is the bound that the others are measured against.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_NEVER = np.iinfo(np.int64).max


class BeladyPolicy:
    """Knows every decode call to come: `calls` are (layer, distinct experts in ascending order), in order."""

    name = "belady"

    def __init__(self, num_layers: int, num_experts: int, calls: Sequence[tuple[int, NDArray[np.int64]]]) -> None:
        self._num_experts = num_experts
        self._next_use = np.full(num_layers * num_experts, _NEVER, np.int64)
        """Number of the call that routes to the expert next."""
        self._next_uses: list[NDArray[np.int64]] = []
        for number in range(len(calls) - 1, -1, -1):
            layer, routed = calls[number]
            names = routed + layer * num_experts
            self._next_uses.append(self._next_use[names])
            self._next_use[names] = number

    def begin_step(self) -> None:
        """Steps don't matter here."""

    def note_use(
        self,
        layer: int,
        routed: NDArray[np.int64],
        expert_ids: NDArray[np.int64],
        router_logits: NDArray[np.float32],
    ) -> None:
        """The next of the calls."""
        self._next_use[routed + layer * self._num_experts] = self._next_uses.pop()

    def scores(self, layer: int, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sooner the next use, the higher."""
        return -self._next_use[owners]

    def history(self) -> dict[str, NDArray[np.int64]]:
        """Nothing that another run could use."""
        return {}
