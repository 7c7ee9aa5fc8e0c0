"""Host memory that a GPU reads where it lies. Owns the page locks: each covers whole pages and ends with its owner."""

import weakref
from collections.abc import Iterable
from contextlib import suppress

import torch
from torch import Tensor

from runtime.errors import EngineError

PAGE_BYTES = 4096
_PORTABLE = 1
"""cudaHostRegisterPortable: locked for every context of the process."""


def page_aligned(num_rows: int, row_bytes: int) -> Tensor:
    """Uninitialised uint8 [num_rows, row_bytes] on pages that it shares with nothing else: `pin` locks whole pages."""
    num_bytes = num_rows * row_bytes
    slab = torch.empty(-(-num_bytes // PAGE_BYTES) * PAGE_BYTES + PAGE_BYTES, dtype=torch.uint8)
    begin = -slab.data_ptr() % PAGE_BYTES
    return slab[begin : begin + num_bytes].view(num_rows, row_bytes)


def pin(memory: Iterable[Tensor], owner: object) -> None:
    """Page-lock tensors of `page_aligned` for as long as `owner` lives, which must keep them alive.

    To be called after they were filled: locked pages are slow to fill. Raises EngineError where the system refuses.
    """
    for part in {part.data_ptr(): part for part in memory}.values():
        assert part.data_ptr() % PAGE_BYTES == 0, "memory to be locked must have its pages to itself"
        num_bytes = -(-part.nbytes // PAGE_BYTES) * PAGE_BYTES
        status = int(torch.cuda.cudart().cudaHostRegister(part.data_ptr(), num_bytes, _PORTABLE))
        if status:
            # The driver would report it once more, at the next launch.
            with suppress(RuntimeError):
                torch.zeros(1, device="cuda")
            raise EngineError(
                f"{num_bytes >> 20} MiB of host memory can't be page-locked for the GPU (CUDA error {status}); close "
                "other programs, see `hotslot doctor` for what limits it, or set --device cpu."
            )
        weakref.finalize(owner, _unpin, part.data_ptr()).atexit = False


def _unpin(address: int) -> None:
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(address)
