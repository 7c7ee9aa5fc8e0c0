"""Blocks of one launch that wait for each other: counters of what is there, in device memory.

A block may wait for blocks of lower number only. The device starts blocks in the order of their numbers, so whoever is
waited for runs or has run, however few blocks fit; a block that computes never waits for room.
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
def _watch(counter_ptr, num_parts):
    """Wait until a counter reaches `num_parts`. Plain reads past the first-level cache: nobody's lines are dropped."""
    count = tl.load(counter_ptr, volatile=True)
    while count < num_parts:
        count = tl.load(counter_ptr, volatile=True)


@triton.jit
def await_parts(counter_ptr, num_parts):
    """Wait for the announcements of `num_parts` blocks, and see what they stored."""
    _watch(counter_ptr, num_parts)
    # A count that nobody uses would be left out, and the order of memory with it.
    count = tl.atomic_add(counter_ptr, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()
    while count < num_parts:
        count = tl.atomic_add(counter_ptr, 0, sem="acquire", scope="gpu")


@triton.jit
def await_parts_once(counter_ptr, num_parts, num_waiting):
    """The same where `num_waiting` blocks wait once each: the last of them leaves zero for the next launch."""
    _watch(counter_ptr, num_parts)
    num_passed = tl.atomic_add(counter_ptr, 1, sem="acquire", scope="gpu") - num_parts
    tl.debug_barrier()
    if num_passed == num_waiting - 1:
        tl.store(counter_ptr, 0)
