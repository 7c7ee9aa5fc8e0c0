"""Kernels of a profiled run, in order, with the part of a decode step that each belongs to."""

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

Part = Literal["experts", "copy", "ensure", "router", "combine", "dense", "attention", "delta_net", "streams", "other"]
# The first match counts. Names of kernels in `kernels/triton_ops`, and of torch's own.
_PARTS: tuple[tuple[str, Part], ...] = (
    ("elementwise", "other"),
    ("memcpy", "other"),
    ("low_rank", "streams"),
    ("_copy_kernel", "copy"),
    # Copies and computes at once.
    ("_copy_and_experts_kernel", "copy"),
    ("_ensure_kernel", "ensure"),
    ("_combine_kernel", "combine"),
    ("_route_kernel", "router"),
    ("expert", "experts"),
    ("attend", "attention"),
    ("select", "attention"),
    ("index_row", "attention"),
    ("write_row", "attention"),
    ("heads_kernel", "attention"),
    ("score_kernel", "attention"),
    ("write_kernel", "attention"),
    ("write_index", "attention"),
    ("block_scores", "attention"),
    ("delta", "delta_net"),
    ("conv", "delta_net"),
    ("gated_rms_norm", "delta_net"),
    ("mix_kernel", "streams"),
    ("inject", "streams"),
    ("linear", "dense"),
    ("gemm", "dense"),
    ("gemv", "dense"),
)


@dataclass(frozen=True)
class Kernel:
    """Times in microseconds."""

    name: str
    begin_us: float
    end_us: float
    stream: int

    @property
    def duration_us(self) -> float:
        return self.end_us - self.begin_us

    @property
    def part(self) -> Part:
        """What of a decode step it computes."""
        lower = self.name.lower()
        return next((part for pattern, part in _PARTS if pattern in lower), "other")


def profile_kernels(run: Callable[[], object]) -> list[Kernel]:
    """Every kernel and copy that `run` makes the GPU do, by the time of its begin."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = [
        Kernel(event["name"], event["ts"], event["ts"] + event["dur"], int(event.get("args", {}).get("stream", -1)))
        for event in events
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    return sorted(kernels, key=lambda kernel: kernel.begin_us)


def split_by_part(kernels: Iterable[Kernel], num_runs: int) -> dict[str, float]:
    """Microseconds per run that kernels of each part took; branches that overlap count twice."""
    totals: dict[str, float] = {}
    for kernel in kernels:
        totals[kernel.part] = totals.get(kernel.part, 0.0) + kernel.duration_us / num_runs
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def split_by_name(kernels: Iterable[Kernel], num_runs: int, most: int = 24) -> dict[str, list[float]]:
    """The same by kernel, the dearest first: microseconds and launches per run."""
    totals: dict[str, list[float]] = {}
    for kernel in kernels:
        entry = totals.setdefault(kernel.name[:80], [0.0, 0.0])
        entry[0] += kernel.duration_us / num_runs
        entry[1] += 1 / num_runs
    return dict(sorted(totals.items(), key=lambda item: -item[1][0])[:most])
