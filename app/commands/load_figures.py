"""How fast a model is loaded, by phase, against what its disk gives: a start with an empty page cache.

Reads the same files past the page cache for the disk's own rate, before and after, drops what the system holds of them,
and loads the model in an engine of its own. Where experts stay on the disk a first start makes their record file, and
what is measured only reads dense weights. Linux alone counts what is needed. Imports no torch.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime.benches.process_counts import disk_bytes_of, drop_page_cache
from runtime.checkpoint.facts import open_checkpoint
from runtime.checkpoint.skipped_parts import is_skipped
from runtime.client import EngineClient
from runtime.errors import EngineError
from runtime.memory.disk_rate import measure_disk_rate
from runtime.options import EngineOptions
from runtime.protocol import LoadProgressed

PIECE_BYTES = 8 << 20
MOST_RATE_BYTES = 2 << 30
LEAST_COUNTED = 0.98
"""Of the weights, what the kernel must have read from the disk: else the page cache was not empty, or none counts."""
READING = ("dense", "experts")
"""The phases that read weights."""


def measure_load(options: EngineOptions) -> dict[str, float]:
    """Seconds of each phase, of the whole, and the bytes the kernel says were read meanwhile."""
    began: dict[str, float] = {}
    client = EngineClient(options)

    def note(progress: LoadProgressed) -> None:
        began.setdefault(progress.phase, time.perf_counter())

    try:
        client.start()
        assert client.process_id is not None
        started_s = time.perf_counter()
        client.load(note)
        ended_s = time.perf_counter()
        disk_bytes = disk_bytes_of(client.process_id)
    finally:
        client.close()
    ends = [*list(began.values())[1:], ended_s]
    seconds = {phase: end - begin for (phase, begin), end in zip(began.items(), ends, strict=True)}
    return {**seconds, "whole": ended_s - started_s, "disk_bytes": disk_bytes}


def file_rate(files: tuple[Path, ...]) -> float:
    """Of reading the files from their beginnings, past the page cache. Raises EngineError where that is not known."""
    rates, left_bytes = [], MOST_RATE_BYTES
    for file in files:
        num_pieces = min(file.stat().st_size, left_bytes) // PIECE_BYTES
        if num_pieces:
            try:
                offsets = [number * PIECE_BYTES for number in range(num_pieces)]
                rates.append(measure_disk_rate(file, offsets, PIECE_BYTES))
            except OSError as error:
                raise EngineError(f"{file} can't be read past the page cache ({error.strerror})") from error
            left_bytes -= num_pieces * PIECE_BYTES
    if not rates:
        raise EngineError(f"the files are too small to measure a disk by: {PIECE_BYTES >> 20} MiB at least")
    return statistics.mean(rates)


@dataclass(frozen=True)
class LoadFigures:
    """Of all rounds; rates are bytes per second, medians."""

    weights_bytes: int
    """What the model has of its files."""
    seconds: dict[str, float]
    """By phase, and of the whole."""
    disk_bytes: int
    """The kernel's count in the last round."""
    is_verified: bool
    """The kernel counted as many bytes from the disk as there are weights: the page cache was empty."""
    disk_rate: float
    """Of the disk alone, the better of two measures a round."""
    read_rate: float
    """While weights were read and converted."""
    ratios: tuple[float, ...]
    """Of the two, by round."""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def measure(options: EngineOptions, rounds: int, tell: Callable[[str], None] = lambda line: None) -> LoadFigures:
    """Raises EngineError where the file system or the system can't show what is asked for."""
    files = open_checkpoint(options.model_path).files
    wanted = sum(entry.end - entry.begin for entry in files.entries.values() if not is_skipped(entry.name))
    if not hasattr(os, "O_DIRECT") or not Path("/proc/self/io").exists():
        raise EngineError("Only Linux counts what is read from a disk; this can't be measured here.")
    if options.ram_bytes is not None:
        tell("A first start makes the record file, if there is none")
        measure_load(options)
    runs, rates = [], []
    for number in range(rounds):
        tell(f"Round {number + 1} of {rounds}")
        before = file_rate(files.weight_files)
        drop_page_cache(files.weight_files)
        runs.append(measure_load(options))
        # A disk that others use, or that allows bursts, is judged by the better of two.
        rates.append(max(before, file_rate(files.weight_files)))
    read_rates = [run["disk_bytes"] / sum(run.get(phase, 0.0) for phase in READING) for run in runs]
    phases = [name for name in runs[0] if name != "disk_bytes"]
    return LoadFigures(
        wanted,
        {phase: statistics.median(run[phase] for run in runs) for phase in phases},
        int(runs[-1]["disk_bytes"]),
        options.ram_bytes is None and all(run["disk_bytes"] >= LEAST_COUNTED * wanted for run in runs),
        statistics.median(rates),
        statistics.median(read_rates),
        tuple(read_rate / rate for read_rate, rate in zip(read_rates, rates, strict=True)),
    )
