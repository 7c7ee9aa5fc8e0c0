"""`hotslot bench overlap`: what overlap saves per MoE layer, that it changes no bit, and where its work lies in time.

Times come from graph replays with device timestamps, levels taking turns; order and overlap from a profiler's trace of
replays. Prints one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from runtime.benches.kernel_trace import Kernel, profile_kernels, split_by_name
from runtime.benches.measures import describe_device, interleaved, measure_bandwidths, percentile, time_runs
from runtime.benches.moe_stack import MoeStack
from runtime.benches.synthetic import FLAGSHIP, TINY, random_store, synthetic_spec
from runtime.benches.traces import fixed_miss_trace
from runtime.execute.decode_graph import DecodeStep
from runtime.execute.overlap import LEVELS, OverlapLevel
from runtime.execute.streams import DecodeStreams
from runtime.experts.store import PinnedStore
from runtime.kernels.ops import select_ops

_COMPARED_STEPS = 16
_PROFILED_STEPS = 6
_WITHOUT_SHARED = "off, without shared experts"
"""The arm whose time, taken from that of `off`, leaves what a shared expert takes one after the other."""
_SHARED_MARKS = ("silu", "sigmoid", "mulfunctor", "shared")
"""In names of kernels that only the shared expert launches inside a layer."""


@dataclass(frozen=True)
class Settings:
    """What is measured; see `parse`."""

    layers: int
    slots: int
    rows: int
    misses: tuple[int, ...]
    replays: int
    rounds: int
    policy: str
    is_tiny: bool


def parse(arguments: list[str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(prog="hotslot bench overlap", description=__doc__, allow_abbrev=False)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--slots", type=int, default=1650, help="expert slots")
    parser.add_argument("--rows", type=int, default=1, help="sequences decoded together, 1 to 4")
    parser.add_argument("--misses", default="0,1,4,10", help="missing experts per layer and step, several to compare")
    parser.add_argument("--replays", type=int, default=40, help="replays of one measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policy", choices=("lru", "rule"), default="lru")
    parser.add_argument("--tiny", action="store_true", help="a tiny geometry, to see the bench run")
    found = parser.parse_args(arguments)
    if not found.tiny and not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU that torch can use; --tiny runs the bench on a CPU, see `hotslot doctor`.")
    misses = tuple(int(part) for part in found.misses.split(","))
    return Settings(
        found.layers, found.slots, found.rows, misses, found.replays, found.rounds, found.policy, found.tiny
    )


@torch.inference_mode()
def run(settings: Settings) -> dict[str, Any]:
    """Measure every number of misses; the report is what is printed."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    spec = synthetic_spec(TINY if settings.is_tiny else FLAGSHIP, settings.layers)
    streams = DecodeStreams(device) if device.type == "cuda" else None
    store = random_store(spec, spec.num_layers)
    if streams is not None:
        store.pin()
    bandwidths = measure_bandwidths(device, store.bank(0) if store.bank(0).nbytes >= 1 << 30 else None)
    report: dict[str, Any] = {
        "device": describe_device(device),
        "geometry": {
            "hidden": spec.hidden_size, "intermediate": spec.moe.intermediate, "experts": spec.moe.num_experts,
            "top_k": spec.moe.num_experts_per_token, "shared": spec.moe.shared_intermediate,
            "layers": spec.num_layers, "record_bytes": store.layouts[0].record_bytes,
        },
        "slots": settings.slots, "rows": settings.rows, "policy": settings.policy,
        "host_to_device_gb_s": bandwidths.host_to_device and bandwidths.host_to_device / 1e9,
        "device_read_gb_s": bandwidths.device_read and bandwidths.device_read / 1e9,
        "by_misses": [],
    }  # fmt: skip
    for num_missed in settings.misses:
        context = torch.cuda.stream(streams.compute) if streams is not None else torch.inference_mode()
        with context:
            report["by_misses"].append(_OneCount(settings, num_missed, device, streams, store).measure())
        # Whoever stops the bench early has what was measured so far.
        print(json.dumps(report["by_misses"][-1]), file=sys.stderr, flush=True)
    return report


class _OneCount:
    """All levels at one number of misses."""

    def __init__(
        self,
        settings: Settings,
        num_missed: int,
        device: torch.device,
        streams: DecodeStreams | None,
        store: PinnedStore,
    ) -> None:
        self._settings, self._num_missed, self._device = settings, num_missed, device
        self._levels: tuple[OverlapLevel, ...] = LEVELS if streams is not None else ("off",)
        spec = synthetic_spec(TINY if settings.is_tiny else FLAGSHIP, settings.layers)
        num_steps = -(-settings.slots // spec.num_layers) // spec.moe.num_experts_per_token + 3 * settings.replays
        trace = fixed_miss_trace(spec, settings.slots, num_steps, settings.rows, num_missed)
        self._num_steps = num_steps
        ops = select_ops(device)
        self._stack = MoeStack(spec, trace, settings.slots, ops, device, streams, settings.policy, store)
        self._steps: dict[OverlapLevel, DecodeStep] = {
            level: self._stack.step(level, is_captured=True) for level in self._levels
        }

    def measure(self) -> dict[str, Any]:
        settings, num_layers = self._settings, self._settings.layers
        is_identical = self._compare_bits()
        arms: dict[str, Callable[[], float]] = {level: partial(self._time, step) for level, step in self._steps.items()}
        without_shared = self._stack.step("off", is_captured=True, has_shared=False)
        arms[_WITHOUT_SHARED] = partial(self._time, without_shared)
        medians = interleaved(arms, settings.rounds)
        serial_us = 1e6 * (medians["off"] - medians[_WITHOUT_SHARED]) / num_layers
        result: dict[str, Any] = {
            "misses_wanted": self._num_missed,
            "misses_counted": self._counted,
            "bitwise_identical": is_identical,
            "us_per_layer": {arm: 1e6 * seconds / num_layers for arm, seconds in medians.items()},
            "shared_expert_serial_us": serial_us,
        }
        if len(self._levels) > 1:
            saved_us = result["saved_us_per_layer"] = {
                level: 1e6 * (medians["off"] - medians[level]) / num_layers for level in self._levels[1:]
            }
            result["share_of_serial_saved_by_shared"] = saved_us["shared"] / serial_us
            if self._num_missed:
                result["trace"] = {level: self._trace(level) for level in self._levels}
                num_routes = settings.rows * self._stack.spec.moe.num_experts_per_token
                hits_us = result["trace"]["shared"]["experts_us_median"] * (1 - self._counted / num_routes)
                result["hits_hidden_share"] = (saved_us["resident"] - saved_us["shared"]) / hits_us if hits_us else None
        return result

    def _fill(self) -> None:
        """Run until the slots are full and every layer misses as often as it should."""
        self._stack.reset()
        for _ in range(self._num_steps - 2 * self._settings.replays):
            self._steps["off"].run()

    def _time(self, step: DecodeStep) -> float:
        self._fill()
        before = self._stack.experts.cache.state.counters.tolist()
        seconds = time_runs(step.run, self._settings.replays, self._device) / self._settings.replays
        after = self._stack.experts.cache.state.counters.tolist()
        self._counted = (after[1] - before[1]) / self._settings.replays / self._settings.layers
        return seconds

    def _compare_bits(self) -> bool:
        """Outputs of every step, slot map and slots: the same at every level."""
        results = []
        for level in self._levels:
            self._stack.experts.pool.zero_()
            self._stack.reset()
            outputs = []
            for _ in range(min(_COMPARED_STEPS, self._num_steps)):
                self._steps[level].run()
                outputs.append(self._stack.outputs.clone())
            experts = self._stack.experts
            # Slots as sums of their words, where they lie: a pool may be larger than what the host likes to copy.
            words = experts.pool.view(torch.int64)
            mixed = (words * torch.arange(1, words.shape[1] + 1, device=words.device)).sum(1)
            results.append((torch.stack(outputs), experts.cache.state.slot_of.clone(), mixed))
        return all(
            torch.equal(ours, theirs) for result in results for ours, theirs in zip(result, results[0], strict=True)
        )

    def _trace(self, level: OverlapLevel) -> dict[str, Any]:
        self._fill()
        kernels = profile_kernels(lambda: [self._steps[level].run() for _ in range(_PROFILED_STEPS)])
        layers = [times for layer in _split_layers(kernels) if (times := _layer_times(layer)) is not None]
        return {
            **_summary(layers),
            "kernels_us_and_launches_per_layer": {
                name: [round(value / self._settings.layers, 3) for value in values]
                for name, values in split_by_name(kernels, _PROFILED_STEPS, 14).items()
            },
        }


@dataclass(frozen=True)
class LayerTimes:
    """Of one layer of one replay, microseconds.

    `slip` is from ensure's end to the copy's begin; `join_gap` from the end of what the combine waits for to its begin.
    At the level `resident` the copy's launch computes the experts too, and `experts` is 0.
    """

    slip: float
    copy: float
    experts: float
    is_shared_inside_copy: bool
    shared_end_before_copy_end: float
    join_gap: float


def _split_layers(kernels: list[Kernel]) -> list[list[Kernel]]:
    """Kernels up to and including each combine."""
    layers: list[list[Kernel]] = [[]]
    for kernel in kernels:
        layers[-1].append(kernel)
        if kernel.part == "combine":
            layers.append([])
    return layers[:-1]


def _layer_times(kernels: list[Kernel]) -> LayerTimes | None:
    """None where a layer's kernels can't be told apart."""
    ensures = [kernel for kernel in kernels if kernel.part == "ensure" and "begin" not in kernel.name.lower()]
    copies = [kernel for kernel in kernels if kernel.part == "copy"]
    routers = [kernel for kernel in kernels if kernel.part == "router"]
    if not (ensures and copies and routers):
        return None
    shared = [kernel for kernel in kernels if any(mark in kernel.name.lower() for mark in _SHARED_MARKS)]
    copy, combine = copies[-1], kernels[-1]
    shared_end = max((kernel.end_us for kernel in shared), default=copy.begin_us)
    last_end = max(kernel.end_us for kernel in kernels[:-1])
    return LayerTimes(
        copy.begin_us - ensures[-1].end_us,
        copy.duration_us,
        sum(kernel.duration_us for kernel in kernels if kernel.part == "experts"),
        shared_end <= copy.end_us,
        copy.end_us - shared_end,
        combine.begin_us - last_end,
    )


def _summary(layers: list[LayerTimes]) -> dict[str, Any]:
    if not layers:
        return {"layers_seen": 0, "experts_us_median": 0.0}
    return {
        "layers_seen": len(layers),
        "slip_us_median": percentile([layer.slip for layer in layers], 0.5),
        "slip_us_p95": percentile([layer.slip for layer in layers], 0.95),
        "copy_us_median": percentile([layer.copy for layer in layers], 0.5),
        "experts_us_median": percentile([layer.experts for layer in layers], 0.5),
        "shared_inside_copy_share": sum(layer.is_shared_inside_copy for layer in layers) / len(layers),
        "shared_ends_before_copy_us_median": percentile([layer.shared_end_before_copy_end for layer in layers], 0.5),
        "join_gap_us_median": percentile([layer.join_gap for layer in layers], 0.5),
    }


def main() -> None:
    print(json.dumps(run(parse()), indent=1))


if __name__ == "__main__":
    main()
