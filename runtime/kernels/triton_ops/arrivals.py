"""Blocks of one launch that wait for each other: counters of what is there, in device memory.

A block may wait for blocks of lower number only. The device starts blocks in the order of their numbers, as the scans
of NVIDIA's CUB count on, so whoever is waited for runs or has run, however few blocks fit at a time.
"""

import triton
import triton.language as tl

COUNTER_STRIDE = 8
"""int32 from one counter to the next: a sector each."""
FAR_STRIDE = 32
"""Of counters that many blocks watch for long: a cache line each, so that the watching is spread over the cache."""


@triton.jit
def announce(counter_ptr):
    """This block has done its part; what all its threads stored before is visible to whoever sees the count."""
    tl.debug_barrier()
    tl.atomic_add(counter_ptr, 1, sem="release", scope="gpu")


@triton.jit
def _watch(counter_ptr, num_parts, SEM: tl.constexpr):
    """Wait until a counter reaches `num_parts`. One thread reads, the others sleep at its barrier."""
    # Adding zero is compiled to a load, and left out where nobody uses what it loaded.
    count = tl.atomic_add(counter_ptr, 0, sem=SEM, scope="gpu")
    while count < num_parts:
        count = tl.atomic_add(counter_ptr, 0, sem=SEM, scope="gpu")


@triton.jit
def await_parts(counter_ptr, num_parts):
    """Wait for the announcements of `num_parts` blocks, and see what they stored."""
    # Relaxed first: every acquiring read empties the multiprocessor's cache, which others are using.
    _watch(counter_ptr, num_parts, "relaxed")
    _watch(counter_ptr, num_parts, "acquire")
    tl.debug_barrier()


@triton.jit
def await_parts_once(counter_ptr, num_parts, num_waiting):
    """The same where `num_waiting` blocks wait once each: the last of them leaves zero for the next launch."""
    _watch(counter_ptr, num_parts, "relaxed")
    num_passed = tl.atomic_add(counter_ptr, 1, sem="acquire", scope="gpu") - num_parts
    tl.debug_barrier()
    if num_passed == num_waiting - 1:
        tl.store(counter_ptr, 0)
