"""Memory that kernels leave to each other on one stream: arrival counters that are zero between launches."""

from functools import lru_cache

import torch
from torch import Tensor

NUM_COUNTERS = 1 << 15


def arrival_counters(device: torch.device, num_counters: int) -> Tensor:
    """Zeros int32, used by one kernel at a time: kernels of one stream follow each other, other streams have others.

    A graph keeps using those of the stream that it was captured on, which must not run anything else meanwhile.
    """
    if num_counters > NUM_COUNTERS:
        raise ValueError(f"{num_counters} arrival counters asked for, a stream has {NUM_COUNTERS}")
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    return _counters(device, stream)


@lru_cache(maxsize=64)
def _counters(device: torch.device, stream: int) -> Tensor:
    return torch.zeros(NUM_COUNTERS, dtype=torch.int32, device=device)
