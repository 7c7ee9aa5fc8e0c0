"""Memory that this process holds, as the system counts it."""

import psutil

_process = psutil.Process()


def resident_bytes() -> int:
    """Resident set size of this process."""
    return int(_process.memory_info().rss)
