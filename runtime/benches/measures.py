"""Times and bandwidths as the benches take them: device timestamps around replays, medians of interleaved rounds."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

GIB = 1 << 30


def time_runs(run: Callable[[], object], num_runs: int, device: torch.device) -> float:
    """Seconds of `num_runs` runs one after the other, on the current stream."""
    if device.type != "cuda":
        started_s = time.perf_counter()
        for _ in range(num_runs):
            run()
        return time.perf_counter() - started_s
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(num_runs):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def interleaved(arms: dict[str, Callable[[], float]], num_rounds: int) -> dict[str, float]:
    """The median of each arm's measure, the arms taking turns."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for round_index in range(num_rounds):
        names = list(arms)
        # Each round starts with another arm, so that none is always the one after a pause.
        for name in names[round_index % len(names) :] + names[: round_index % len(names)]:
            times[name].append(arms[name]())
    return {name: statistics.median(values) for name, values in times.items()}


@dataclass(frozen=True)
class Bandwidths:
    """Bytes per second, measured in this run; None where there is no GPU."""

    host_to_device: float | None
    """cudaMemcpy of 1 GiB from pinned memory."""
    device_read: float | None
    """A sum over 4 GiB."""


def measure_bandwidths(device: torch.device, pinned: torch.Tensor | None = None) -> Bandwidths:
    """`pinned` may lend the host memory, at least 1 GiB."""
    if device.type != "cuda":
        return Bandwidths(None, None)
    host = pinned if pinned is not None else torch.empty(GIB, dtype=torch.uint8, pin_memory=True)
    source = host.view(-1)[:GIB]
    target = torch.empty_like(source, device=device)
    copies = [time_runs(lambda: target.copy_(source, non_blocking=True), 1, device) for _ in range(5)]
    numbers = torch.ones(GIB, dtype=torch.float32, device=device)
    reads = [time_runs(lambda: numbers.sum(), 1, device) for _ in range(7)]
    return Bandwidths(source.nbytes / statistics.median(copies), numbers.nbytes / statistics.median(reads[2:]))


def describe_device(device: torch.device) -> str:
    """Its name, for a report."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def percentile(values: Sequence[float], share: float) -> float:
    """Of at least one value, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
