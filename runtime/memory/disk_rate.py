"""What a disk gives: direct reads of a file's bytes, several in flight, nothing computed. Imports no torch."""

import mmap
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runtime.record import whole_blocks

NUM_IN_FLIGHT = 8
_QUICK_BYTES = 96 << 20
"""Read by `quick_disk_rate`: a tenth of a second of a fast disk."""
_FEWEST_PIECES = 32


def measure_disk_rate(file: Path, offsets: Sequence[int], piece_bytes: int) -> float:
    """Bytes per second of reading `piece_bytes` at each offset, all of them whole blocks, past the page cache.

    Raises OSError where the file system knows no such reads.
    """
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


def quick_disk_rate(files: Sequence[Path], record_bytes: int) -> float | None:
    """Of reads as long as a record, here and there in the largest of the files; None where that can't be measured."""
    if not files or not hasattr(os, "O_DIRECT"):
        return None
    file, piece_bytes = max(files, key=lambda path: path.stat().st_size), whole_blocks(record_bytes)
    num_places = file.stat().st_size // piece_bytes
    if num_places < _FEWEST_PIECES:
        return None
    num_pieces = min(num_places, max(_FEWEST_PIECES, _QUICK_BYTES // piece_bytes))
    places = random.Random(0).sample(range(num_places), num_pieces)
    try:
        return measure_disk_rate(file, [place * piece_bytes for place in places], piece_bytes)
    except OSError:
        return None
