"""`lru`: the expert that was used longest ago goes first."""

import numpy as np
from numpy.typing import NDArray


class LruPolicy:
    """Stamps the routed experts once per ensure call. An expert that was never used has stamp 0 and goes first."""

    name = "lru"

    def __init__(self, num_layers: int, num_experts: int) -> None:
        self._num_experts = num_experts
        self._clock = np.zeros(1, np.int64)
        self._stamps = np.zeros(num_layers * num_experts, np.int64)

    def begin_step(self) -> None:
        """Steps don't matter here: the clock advances per call."""

    def note_use(
        self,
        layer: int,
        routed: NDArray[np.int64],
        expert_ids: NDArray[np.int64],
        router_logits: NDArray[np.float32],
    ) -> None:
        """All routed experts of the call share one stamp."""
        self._clock += 1
        self._stamps[routed + layer * self._num_experts] = self._clock[0]

    def scores(self, layer: int, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """The stamps."""
        return self._stamps[owners]

    def history(self) -> dict[str, NDArray[np.int64]]:
        """Calls so far, and the call of each expert's last use."""
        return {"clock": self._clock, "stamps": self._stamps}
