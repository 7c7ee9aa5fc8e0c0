"""The work list of *ensure* where the host reads it: for stores whose records the device can't reach.

Owns a few numbers of host memory, into which the device copies, in the order of its launches.
"""

import torch
from torch import Tensor

from runtime.kernels.torch_ops.slots import SlotState


class MissedOnHost:
    """Room for the lists of one layer at a time, of states as large as `state`."""

    def __init__(self, state: SlotState) -> None:
        self._device = state.owner.device

        def like(part: Tensor) -> Tensor:
            return torch.zeros(part.shape, dtype=part.dtype, pin_memory=self._device.type == "cuda")

        self._num_missed = like(state.num_missed)
        self._experts, self._slots = like(state.missed_experts), like(state.missed_slots)

    def take(self, state: SlotState) -> None:
        """Launch the copies, so that a graph can hold them."""
        self._num_missed.copy_(state.num_missed, non_blocking=True)
        self._experts.copy_(state.missed_experts, non_blocking=True)
        self._slots.copy_(state.missed_slots, non_blocking=True)

    def wait(self) -> list[tuple[int, int]]:
        """(expert, slot) of every miss, once the current stream has done all that it was given."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        num_missed = int(self._num_missed)
        return list(zip(self._experts[:num_missed].tolist(), self._slots[:num_missed].tolist(), strict=True))
