"""Brings memory in before it is touched: pages of mapped files from the disk, and fresh pages for what is made of them.

Its threads do what page faults would do one by one in the thread that computes, and run without Python's lock. Where
the system does not know how, or refuses, nothing is lost: whoever touches a page then waits for it.
"""

import ctypes
import mmap
import sys
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

_NUM_THREADS = 8
"""Reads in flight: what a disk wants to be asked for at once to be fast."""
_WILL_NEED, _POPULATE_READ, _POPULATE_WRITE = 3, 22, 23
"""Of Linux's madvise; the last two since 5.14."""

PendingPages = Future[None]
"""Pages that are on their way; `result` waits for them."""


class PageReader:
    """Its threads end with it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "page-reader")
        weakref.finalize(self, self._threads.shutdown, wait=False, cancel_futures=True)

    def read(self, address: int, num_bytes: int, owner: object) -> PendingPages:
        """Begin to read mapped bytes; done when their pages are there. `owner` keeps the map alive meanwhile."""
        return self._threads.submit(_advise, address, num_bytes, (_WILL_NEED, _POPULATE_READ), owner)

    def make(self, memory: Tensor) -> None:
        """Begin to take fresh pages for host memory that will be written; what is there already stays as it is."""
        self._threads.submit(_advise, memory.data_ptr(), memory.nbytes, (_POPULATE_WRITE,), memory)


def _load_madvise() -> Any:
    if sys.platform != "linux":
        return None
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return madvise


_madvise = _load_madvise()


def _advise(address: int, num_bytes: int, advices: tuple[int, ...], owner: object) -> None:
    if _madvise is None:
        return
    begin = address // mmap.PAGESIZE * mmap.PAGESIZE
    for advice in advices:
        _madvise(begin, address + num_bytes - begin, advice)
