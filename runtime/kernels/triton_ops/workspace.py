"""Memory that blocks of one kernel leave to each other: arrival counters, zero between launches, one set per stream."""

import torch
from torch import Tensor

NUM_COUNTERS = 512
"""Of one stream."""
_STREAMS_PER_POOL = 256


class ArrivalCounters:
    """Sets of zeros on one device. Never freed, so that graphs may hold their addresses."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sets: dict[int, Tensor] = {}
        self._spare: list[Tensor] = []

    def of_stream(self, stream: int) -> Tensor:
        """The set of one stream, by its handle."""
        if stream not in self._sets:
            if not self._spare:
                self._grow()
            self._sets[stream] = self._spare.pop()
        return self._sets[stream]

    def check_integrity(self) -> None:
        """Raises AssertionError if a set is shared, or not zero while no kernel runs."""
        every = [*self._sets.values(), *self._spare]
        assert len({counters.data_ptr() for counters in every}) == len(every)
        assert not any(counters.any() for counters in every)

    def _grow(self) -> None:
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("kernels must run once before a graph is captured: their counters are made then")
        # A tensor made in inference mode can't be used outside of it.
        with torch.inference_mode(False):
            pool = torch.zeros(_STREAMS_PER_POOL, NUM_COUNTERS, dtype=torch.int32, device=self._device)
        self._spare.extend(pool.unbind(0))
        if self._device.type == "cuda":
            # Whatever stream uses a set first must see the zeros.
            torch.cuda.synchronize(self._device)


_counters: dict[torch.device, ArrivalCounters] = {}


def arrival_counters(device: torch.device, num_counters: int) -> Tensor:
    """Zeros int32, used by one kernel at a time: kernels of one stream follow each other, other streams have others.

    A graph goes on using those of the stream that it was captured on, which must not run anything else meanwhile.
    """
    if num_counters > NUM_COUNTERS:
        raise ValueError(f"{num_counters} arrival counters asked for, a stream has {NUM_COUNTERS}")
    if device not in _counters:
        _counters[device] = ArrivalCounters(device)
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    return _counters[device].of_stream(stream)
