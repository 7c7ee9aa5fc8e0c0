"""What the engine holds where its slots are, and the most it may hold."""

from dataclasses import dataclass
from typing import Protocol

import torch


class Memory(Protocol):
    """`limit_bytes` None: no limit."""

    @property
    def limit_bytes(self) -> int | None: ...

    @property
    def used_bytes(self) -> int: ...


@dataclass(frozen=True)
class PlannedMemory:
    """On a CPU: the tensors as they were allocated, and the workspace that steps may take."""

    limit_bytes: int | None
    used_bytes: int


@dataclass(frozen=True)
class CudaMemory:
    """On a GPU: what torch's allocator has taken from the driver, and the CUDA context beside it."""

    limit_bytes: int | None
    context_bytes: int

    @property
    def used_bytes(self) -> int:
        """Now; graphs and their pool included."""
        return self.context_bytes + torch.cuda.memory_reserved()


def start_cuda(free_before_bytes: int | None) -> int:
    """Create the CUDA context; returns the bytes it took, 0 where nobody knows what was free before."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    free_bytes, _ = torch.cuda.mem_get_info()
    if free_before_bytes is None:
        return 0
    return max(0, free_before_bytes - free_bytes - torch.cuda.memory_reserved())
