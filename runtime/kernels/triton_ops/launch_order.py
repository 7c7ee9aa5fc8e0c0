"""Programmatic launch order: a launch begins while the one before it on its stream still runs, and waits inside.

What its start costs is paid by then, and its weights are under way. Cards from 9.0 on have it; on others a launch
begins when the one before has ended, as ever. Before a kernel calls `await_last_launch` it writes nothing and reads
only weights, and what torch has written of a step's inputs: positions, page tables, angles. A launch of torch's lets
the next one begin when it has ended. One exception: `await_last_launch` lets the next launch begin, so whoever runs
knows that all before its predecessor has ended, and may read what that left, past the L1 cache (`.cg`), if the
predecessor is always the same.

A launch that waits for another stream as well waits inside for both; one that begins a branch is made without
`begins_early`.
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from runtime.kernels.triton_ops.rows import INTERPRETED

_LEAST_CAPABILITY = (9, 0)
LAUNCHES_EARLY = True
"""False has every launch wait for the end of the one before: to compare."""


@lru_cache(maxsize=8)
def has_launch_order(device: torch.device) -> bool:
    """Whether the card knows of it."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= _LEAST_CAPABILITY


def begins_early(device: torch.device) -> dict[str, bool]:
    """Launch options of a kernel that calls `await_last_launch`, on its way to this device."""
    return {"launch_pdl": LAUNCHES_EARLY and has_launch_order(device)}


@triton.jit
def await_last_launch():
    """What the launches before have stored is visible from here on, and the next launch may begin."""
    if not INTERPRETED and tl.target_info.cuda_capability_geq(9, 0):
        gdc_wait()
        gdc_launch_dependents()
