"""What threads bring in costs whoever touches it no page fault, and bytes are those of the file."""

import ctypes
import mmap
import os
import resource
import sys
from pathlib import Path

import pytest
import torch

from runtime.benches.process_counts import drop_page_cache
from runtime.checkpoint import page_reader
from runtime.checkpoint.page_reader import PageReader

NUM_BYTES = 8 << 20


def faults() -> int:
    """Of this thread, so far."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_minflt + usage.ru_majflt


def touch(address: int) -> int:
    """Read one byte of every page; returns the page faults that took."""
    before = faults()
    for offset in range(0, NUM_BYTES, mmap.PAGESIZE):
        ctypes.c_ubyte.from_address(address + offset).value  # noqa: B018
    return faults() - before


def populates() -> bool:
    """Whether this system knows how to."""
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return page_reader._madvise is not None and page_reader._madvise(address, mmap.PAGESIZE, 23) == 0


@pytest.fixture
def mapped(tmp_path: Path) -> mmap.mmap:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20) * (NUM_BYTES >> 20))
    drop_page_cache([file])
    with file.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux does")
def test_pages_are_there_when_the_read_is_done(mapped: mmap.mmap) -> None:
    if not populates():
        pytest.skip("this kernel does not populate pages on request")
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    PageReader().read(address + 5, NUM_BYTES - 5, mapped).result()
    assert touch(address) < NUM_BYTES // mmap.PAGESIZE // 32
    # The same where nothing was asked for: the count above means something.
    mapped.madvise(mmap.MADV_DONTNEED)
    assert touch(address) > NUM_BYTES // mmap.PAGESIZE // 32


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux does")
def test_new_memory_is_taken_without_being_changed() -> None:
    if not populates():
        pytest.skip("this kernel does not populate pages on request")
    memory = torch.frombuffer(mmap.mmap(-1, NUM_BYTES), dtype=torch.uint8)
    memory[12345] = 7
    reader = PageReader()
    reader.make(memory)
    reader._threads.shutdown(wait=True)
    assert touch(memory.data_ptr()) < 8
    assert memory[12345] == 7


def test_a_system_that_can_not_is_no_obstacle(mapped: mmap.mmap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_reader, "_madvise", None)
    reader, address = PageReader(), ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    reader.read(address, NUM_BYTES, mapped).result()
    reader.make(torch.empty(NUM_BYTES, dtype=torch.uint8))
