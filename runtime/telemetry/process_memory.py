"""Memory that this process holds, as the system counts it."""

import psutil

_process = psutil.Process()


def resident_bytes() -> int:
    """Resident set size of this process."""
    return int(_process.memory_info().rss)


def library_bytes() -> int:
    """The part of it that is mapped from files: libraries, before a model is loaded. 0 where the system can't say."""
    return int(getattr(_process.memory_info(), "shared", 0))
