"""Whether this system counts what is read from a disk: not every file system does."""

import os
from pathlib import Path

from runtime.benches.disk_counts import drop_page_cache
from runtime.memory.disk_rate import measure_disk_rate

MIB = 1 << 20


def counts_disk_reads(folder: Path) -> bool:
    """Whether the kernel counts what is read from the disk of this folder, past the page cache."""
    probe = folder / "probe"
    probe.write_bytes(os.urandom(MIB))
    drop_page_cache([probe])
    try:
        before = own_disk_bytes()
        measure_disk_rate(probe, [0], MIB)
        return own_disk_bytes() - before >= MIB
    except OSError:
        return False


def own_disk_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes:")).split()[1])
