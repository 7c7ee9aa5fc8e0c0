"""What the system has counted of a process, and page caches dropped, so that it reads the disk."""

import os
from collections.abc import Sequence
from pathlib import Path

import psutil


def drop_page_cache(files: Sequence[Path]) -> None:
    """The system keeps nothing of these files, so that whoever reads them next reads the disk."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def disk_bytes_of(process_id: int) -> int:
    """What the kernel says that a process has read from disks."""
    lines = Path(f"/proc/{process_id}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes:")).split()[1])


def peak_bytes_of(process_id: int) -> int:
    """The most memory that a process has held (VmHWM)."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


def held_bytes_of(process_id: int) -> dict[str, int]:
    """What a process holds now: its own memory, pages of files (libraries, and what it has mapped), and shared memory
    with the drivers'. The peak counts all three."""
    names = {"RssAnon": "own", "RssFile": "files", "RssShmem": "shared"}
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return {names[name]: 1024 * int(line.split()[1]) for line in lines if (name := line.split(":")[0]) in names}


def cpu_seconds_of(process_id: int) -> float:
    """Processor time of a process so far: other programs don't lengthen it."""
    times = psutil.Process(process_id).cpu_times()
    return float(times.user + times.system)
