"""What a disk gives at most: direct reads of a file's bytes, several in flight, nothing computed."""

import mmap
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NUM_IN_FLIGHT = 8


def measure_disk_rate(file: Path, offsets: Sequence[int], piece_bytes: int) -> float:
    """Bytes per second of reading `piece_bytes` at each offset, all of them whole blocks, past the page cache."""
    descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
    buffers = [mmap.mmap(-1, piece_bytes) for _ in range(NUM_IN_FLIGHT)]

    def read(worker: int) -> None:
        for offset in offsets[worker::NUM_IN_FLIGHT]:
            os.preadv(descriptor, [buffers[worker]], offset)

    try:
        started_s = time.perf_counter()
        with ThreadPoolExecutor(NUM_IN_FLIGHT) as pool:
            list(pool.map(read, range(NUM_IN_FLIGHT)))
        return len(offsets) * piece_bytes / (time.perf_counter() - started_s)
    finally:
        os.close(descriptor)


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
