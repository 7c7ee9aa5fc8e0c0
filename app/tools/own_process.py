"""Keeps other processes of the same user, such as commands, from reading this one's memory and environment."""

import ctypes
import sys

_PR_SET_DUMPABLE = 4


def hide_own_memory() -> None:
    """From now on /proc/<this process>/environ and mem are closed to all but the system; no core is dumped.

    Secrets like HF_TOKEN stand in the environment block for as long as the process lives, and any process of the same
    user may else read it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
