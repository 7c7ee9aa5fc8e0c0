"""Runs part of a test, or a process, without root's power to read and write everything."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = 65534
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """File permissions hold inside, also where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def obey_permissions() -> None:
    """For a process about to start, as `preexec_fn`: file permissions hold in it and its children, also for root."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "this process can't give up its power over files")
