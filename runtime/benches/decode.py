"""`hotslot bench decode`: a whole decode step at the flagship's geometry, its parts, and its distance to the floor.

Random weights, the engine's own decode graphs, real router, policy and n-gram lookup; the router's choice is replaced
by a trace with a chosen hit rate. The floor of a step is its missed bytes over the bandwidth of a 1 GiB copy plus the
dense bytes over the rate at which the GPU reads its memory, both measured in the same run. Prints one JSON object, and
on stderr every figure as soon as it is there.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from runtime.benches.decode_rig import Rig, RoutedSteps, graph_bytes, try_kernels
from runtime.benches.injection import InjectedRouting
from runtime.benches.kernel_trace import profile_kernels, split_by_name, split_by_part
from runtime.benches.measures import Bandwidths, describe_device, interleaved, measure_bandwidths, time_runs
from runtime.benches.synthetic import FLAGSHIP, TINY, StoreFilling, synthetic_spec
from runtime.benches.traces import hit_rate_trace, num_distinct_routes
from runtime.execute.overlap import LEVELS, OverlapLevel
from runtime.execute.streams import DecodeStreams
from runtime.memory.probe import count_cores
from runtime.memory.sizes import experts_bytes
from runtime.options import DenseName

_FILL_STEPS = 10
"""Steps before a measure: by then the slots are full and hits are what the trace wants."""
_PROFILED_STEPS = 4
ONE_ROW_BOUND, ROWS_BOUND = 1.30, 1.20
"""What a step may take over its floor: of one row all of it, of more rows all but what one row takes over its own."""


@dataclass(frozen=True)
class Settings:
    """What is measured; see `parse`."""

    layers: int
    slots: int
    hit_rate: float
    rows: tuple[int, ...]
    steps: int
    rounds: int
    position: int
    banks: int | None
    policies: tuple[str, ...]
    levels: tuple[OverlapLevel, ...]
    dense: tuple[DenseName, ...]
    is_tiny: bool


def parse(arguments: list[str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(prog="hotslot bench decode", description=__doc__, allow_abbrev=False)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--slots", type=int, default=1650)
    parser.add_argument("--hit-rate", type=float, default=0.57, help="share of routes whose expert is resident")
    parser.add_argument("--rows", default="1,2,3,4", help="sequences decoded together, several to compare")
    parser.add_argument("--steps", type=int, default=8, help="steps of one measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--position", type=int, default=4096, help="tokens before the one that is decoded")
    parser.add_argument("--banks", type=int, help="host banks; fewer than layers are shared. Default: what fits")
    parser.add_argument("--policies", default="rule,lru")
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--dense", default="bf16,fp8")
    parser.add_argument("--tiny", action="store_true", help="a tiny geometry, to see the bench run")
    found = parser.parse_args(arguments)
    if not found.tiny and not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU that torch can use; --tiny runs the bench on a CPU, see `hotslot doctor`.")
    levels = cast(tuple[OverlapLevel, ...], _names("--levels", found.levels, LEVELS))
    dense = cast(tuple[DenseName, ...], _names("--dense", found.dense, ("bf16", "fp8")))
    rows = tuple(int(part) for part in found.rows.split(","))
    return Settings(
        found.layers, found.slots, found.hit_rate, rows, found.steps, found.rounds, found.position, found.banks,
        _names("--policies", found.policies, ("lru", "rule")), levels, dense, found.tiny,
    )  # fmt: skip


def _names(option: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"{option} takes {', '.join(known)}, not {unknown[0]}.")
    return names


class _Bench:
    """What all arms share: host banks, traces, bandwidths."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self._started_s = settings, time.monotonic()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        is_cuda = self.device.type == "cuda"
        self.spec = spec = synthetic_spec(TINY if settings.is_tiny else FLAGSHIP, settings.layers)
        self.levels: tuple[OverlapLevel, ...] = settings.levels if is_cuda else ("off",)
        self.num_banks = settings.banks or self._fitting_banks()
        with _processes() as processes:
            # First, while there are no threads that a forked process would miss.
            traces = self._simulate(processes)
            self.say(f"filling {self.num_banks} host banks for {spec.num_layers} layers")
            self._filling = StoreFilling(spec, self.num_banks, is_pinned=is_cuda)
            self.streams = DecodeStreams(self.device) if is_cuda else None
            self._rig: Rig | None = None
            # The first precision last, because it stays.
            for dense in reversed(settings.dense):
                self._rig = None
                self._rig = self.rig(dense)
                self.say(f"{dense} weights drawn")
                if is_cuda:
                    try_kernels(self._rig, self._filling.first_bank_alone(), settings.policies, settings.slots)
                    self.say("kernels tried")
            self.traces = {key: trace.result() for key, trace in traces.items()}
        self.store = self._filling.store()
        self.say("all banks filled and page-locked")
        self.bandwidths: Bandwidths = measure_bandwidths(self.device)
        self.setup_s = time.monotonic() - self._started_s

    def say(self, message: str) -> None:
        print(f"{time.monotonic() - self._started_s:6.1f} s: {message}", file=sys.stderr, flush=True)

    def rig(self, dense: DenseName) -> Rig:
        """The one that is there, or a new one."""
        rig, self._rig = self._rig, None
        if rig is not None:
            return rig
        settings = self.settings
        return Rig(self.spec, dense, max(settings.rows), settings.position, self.device, self.streams)

    def report(self) -> dict[str, Any]:
        """Every arm, one precision and policy after the other."""
        settings, spec = self.settings, self.spec
        arms: list[dict[str, Any]] = []
        splits: list[dict[str, Any]] = []
        vram: list[dict[str, Any]] = []
        for dense in settings.dense:
            rig = self.rig(dense)
            for policy in settings.policies:
                run = _PolicyRun(self, rig, dense, policy)
                arms += run.arms()
                if policy == settings.policies[0] and self.streams is not None:
                    splits.append(run.split())
                    vram.append(run.vram())
                del run
            table_bytes = rig.decoder.ngram_table_bytes
            del rig
        distinct = {rows: num_distinct_routes(spec, settings.slots, rows) for rows in settings.rows}
        return {
            "device": describe_device(self.device), "setup_s": self.setup_s,
            "layers": spec.num_layers, "slots": settings.slots, "hit_rate_wanted": settings.hit_rate,
            "position": settings.position,
            "host_banks": self.num_banks, "host_banks_are_shared": self.num_banks < spec.num_layers,
            "distinct_routes_per_layer": distinct,
            "ngram_table_bytes": table_bytes, "record_bytes": self.store.layouts[0].record_bytes,
            "host_to_device_gb_s": _giga(self.bandwidths.host_to_device),
            "device_read_gb_s": _giga(self.bandwidths.device_read),
            "arms": arms, "splits": splits, "graph_vram": vram,
        }  # fmt: skip

    def _fitting_banks(self) -> int:
        per_bank = experts_bytes(self.spec) // self.spec.num_layers
        return max(1, min(self.spec.num_layers, int(0.8 * psutil.virtual_memory().available) // per_bank))

    def _simulate(self, processes: ProcessPoolExecutor) -> "dict[tuple[str, int], Future[NDArray[np.int64]]]":
        """Traces by policy and number of rows, each long enough for all that is measured with it."""
        settings = self.settings
        num_steps = _FILL_STEPS + max(settings.rounds * len(self.levels) * settings.steps, _PROFILED_STEPS + 1)
        return {
            (policy, rows): processes.submit(
                hit_rate_trace, self.spec, policy, settings.slots, num_steps, rows, settings.hit_rate
            )
            for policy in settings.policies
            for rows in range(1, max(settings.rows) + 1)
        }


class _PolicyRun:
    """All levels and numbers of rows under one policy, over one pool of slots."""

    def __init__(self, bench: _Bench, rig: Rig, dense: str, policy: str) -> None:
        self._bench, self._rig, self._names = bench, rig, {"dense": dense, "policy": policy}
        self._experts = rig.experts(bench.store, policy, bench.settings.slots)
        self._routings = {
            rows: InjectedRouting(bench.traces[policy, rows], rig.device, bench.spec.moe.num_experts)
            for rows in range(1, rig.max_rows + 1)
        }
        self._steps: dict[OverlapLevel, RoutedSteps] = {}
        for level in bench.levels:
            steps = self._steps[level] = RoutedSteps(rig, self._experts, self._routings)
            steps.build(level)
        bench.say(f"{dense}, {policy}: captured")

    def arms(self) -> list[dict[str, Any]]:
        """One per number of rows and level."""
        found: list[dict[str, Any]] = []
        one_row: dict[str, dict[str, Any]] = {}
        for rows in self._bench.settings.rows:
            for level, (seconds, hit_rate, missed_bytes) in self._measure(rows).items():
                arm = self._arm(rows, level, seconds, hit_rate, missed_bytes)
                if rows == 1:
                    one_row[level] = arm
                if "floor_ms" in arm and level in one_row:
                    arm["bound_ms"] = _bound_ms(arm, one_row[level])
                found.append(arm)
                # Whoever stops the bench early has what was measured so far.
                self._bench.say(json.dumps(arm))
        return found

    def split(self) -> dict[str, Any]:
        """Where one row's time goes. Of the serial sequence, since branches that overlap would count twice."""
        run = self._start("off" if "off" in self._steps else self._bench.levels[0], 1)
        with self._rig.on_compute_stream():
            kernels = profile_kernels(lambda: [run() for _ in range(_PROFILED_STEPS)])
        span = max(kernel.end_us for kernel in kernels) - min(kernel.begin_us for kernel in kernels)
        found: dict[str, Any] = {
            **self._names,
            "us_per_step": {part: round(us, 1) for part, us in split_by_part(kernels, _PROFILED_STEPS).items()},
            "launches_per_step": len(kernels) / _PROFILED_STEPS,
            "profiled_us_per_step": span / _PROFILED_STEPS,
            "kernels_us_and_launches": {
                name: [round(value, 1) for value in values]
                for name, values in split_by_name(kernels, _PROFILED_STEPS, 40).items()
            },
        }
        self._bench.say(json.dumps(found))
        return found

    def vram(self) -> dict[str, Any]:
        """What decode graphs take, and overlap's part of it. The last thing to ask for: the steps are gone then."""
        steps = self._steps[self._bench.levels[0]]
        self._steps.clear()
        by_level = graph_bytes(self._rig, steps, self._bench.levels)
        found = {**self._names, "bytes": by_level}
        if "off" in by_level:
            found["overlap_costs_bytes"] = {level: size - by_level["off"] for level, size in by_level.items()}
        self._bench.say(json.dumps(found))
        return found

    def _measure(self, rows: int) -> dict[OverlapLevel, tuple[float, float, float]]:
        """By level: median seconds of a step, hit rate, bytes missed per step. The levels take turns along the trace,
        so that all find full slots."""
        settings, counters = self._bench.settings, self._experts.cache.state.counters
        counted: dict[OverlapLevel, list[list[float]]] = {level: [] for level in self._steps}

        def window(level: OverlapLevel) -> float:
            before = counters.tolist()
            seconds = time_runs(lambda: self._steps[level].launch(rows), settings.steps, self._rig.device)
            counted[level].append([now - then for now, then in zip(counters.tolist(), before, strict=True)])
            return seconds / settings.steps

        with self._rig.on_compute_stream():
            self._start(self._bench.levels[0], rows)
            medians = interleaved({level: partial(window, level) for level in self._steps}, settings.rounds)
        found: dict[OverlapLevel, tuple[float, float, float]] = {}
        for level, windows in counted.items():
            routed, missed, num_bytes = (sum(column) for column in zip(*windows, strict=True))
            found[level] = medians[level], 1.0 - missed / routed, num_bytes / len(windows) / settings.steps
        return found

    def _start(self, level: OverlapLevel, rows: int) -> Callable[[], object]:
        """Slots and trace at their start, then enough steps to fill them; returns one more step."""
        self._experts.cache.reset()
        self._routings[rows].rewind()
        with self._rig.on_compute_stream():
            self._rig.inputs.fill_at(rows, self._bench.settings.position)

            def run() -> object:
                return self._steps[level].launch(rows)

            for _ in range(_FILL_STEPS):
                run()
        return run

    def _arm(self, rows: int, level: str, seconds: float, hit_rate: float, missed_bytes: float) -> dict[str, Any]:
        result: dict[str, Any] = {
            **self._names, "rows": rows, "overlap": level,
            "ms_per_step": 1e3 * seconds, "ms_per_token": 1e3 * seconds / rows, "tok_s": rows / seconds,
            "hit_rate": hit_rate, "missed_bytes_per_step": missed_bytes,
        }  # fmt: skip
        bandwidths = self._bench.bandwidths
        if bandwidths.host_to_device and bandwidths.device_read:
            copy_s = missed_bytes / bandwidths.host_to_device
            dense_s = self._rig.dense_read_bytes / bandwidths.device_read
            result |= {
                "floor_ms": {"missed": 1e3 * copy_s, "dense": 1e3 * dense_s},
                "ratio_to_floor": seconds / (copy_s + dense_s),
            }
        return result


def _bound_ms(arm: dict[str, Any], one_row: dict[str, Any]) -> float:
    """The most that a step may take."""
    floor_ms, one_floor_ms = (sum(found["floor_ms"].values()) for found in (arm, one_row))
    if arm is one_row:
        return ONE_ROW_BOUND * floor_ms
    overhead_ms: float = one_row["ms_per_step"] - one_floor_ms
    return ROWS_BOUND * floor_ms + overhead_ms


def _processes() -> ProcessPoolExecutor:
    """Forked where that exists: a process that starts anew would import torch first."""
    methods = multiprocessing.get_all_start_methods()
    return ProcessPoolExecutor(count_cores(), multiprocessing.get_context("fork" if "fork" in methods else "spawn"))


def _giga(rate: float | None) -> float | None:
    return None if rate is None else rate / 1e9


def main() -> None:
    print(json.dumps(_Bench(parse()).report(), indent=1))


if __name__ == "__main__":
    main()
