"""Whether this system counts what is read from a disk: not every file system does."""

import os
from pathlib import Path

from runtime.benches.process_counts import disk_bytes_of, drop_page_cache
from runtime.memory.disk_rate import measure_disk_rate

MIB = 1 << 20


def counts_disk_reads(folder: Path) -> bool:
    """Whether the kernel counts what is read from the disk of this folder, past the page cache."""
    probe = folder / "probe"
    probe.write_bytes(os.urandom(MIB))
    drop_page_cache([probe])
    try:
        before = disk_bytes_of(os.getpid())
        measure_disk_rate(probe, [0], MIB)
        return disk_bytes_of(os.getpid()) - before >= MIB
    except OSError:
        return False
