"""`hotslot bench decode`: a whole decode step at the flagship's geometry, its parts, and its distance to the floor.

Random weights, the engine's own decode graphs, real router, policy and n-gram lookup; the router's choice is replaced
by a trace with a chosen hit rate. The floor of a step is its missed bytes over the bandwidth of a 1 GiB copy plus the
dense bytes over the rate at which the GPU reads its memory, both measured in the same run. Prints one JSON object.
"""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import psutil
import torch

from runtime.benches.injection import InjectedRouting, hit_rate_trace
from runtime.benches.kernel_trace import profile_kernels, split_by_name, split_by_part
from runtime.benches.measures import Bandwidths, describe_device, interleaved, measure_bandwidths, time_runs
from runtime.benches.synthetic import FLAGSHIP, NAMES, TINY, RandomTensors, random_store, synthetic_spec
from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.execute.decode_graph import DecodeSteps
from runtime.execute.decode_inputs import DecodeInputs
from runtime.execute.overlap import LEVELS, OverlapLevel
from runtime.execute.streams import DecodeStreams
from runtime.experts.branches import Branches
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.device_slots import DeviceSlots
from runtime.kernels.ops import Ops, select_ops
from runtime.layers.decoder import Decoder
from runtime.memory.sizes import experts_bytes
from runtime.spec import PAGE_TOKENS

_FILL_STEPS = 24
"""Steps before a measure: by then the slots are full and hits are what the trace wants."""
_PROFILED_STEPS = 4


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
    is_tiny: bool


def parse(arguments: list[str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(prog="hotslot bench decode", description=__doc__, allow_abbrev=False)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--slots", type=int, default=1650)
    parser.add_argument("--hit-rate", type=float, default=0.57, help="share of routes whose expert is resident")
    parser.add_argument("--rows", default="1,2,3,4", help="sequences decoded together, several to compare")
    parser.add_argument("--steps", type=int, default=24, help="steps of one measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--position", type=int, default=4096, help="tokens before the one that is decoded")
    parser.add_argument("--banks", type=int, help="host banks; fewer than layers are shared. Default: what fits")
    parser.add_argument("--policies", default="rule,lru")
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--tiny", action="store_true", help="a tiny geometry, to see the bench run")
    found = parser.parse_args(arguments)
    if not found.tiny and not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU that torch can use; --tiny runs the bench on a CPU, see `hotslot doctor`.")
    levels = cast(tuple[OverlapLevel, ...], tuple(found.levels.split(",")))
    rows = tuple(int(part) for part in found.rows.split(","))
    return Settings(
        found.layers, found.slots, found.hit_rate, rows, found.steps, found.rounds, found.position, found.banks,
        tuple(found.policies.split(",")), levels, found.tiny,
    )  # fmt: skip


class _Bench:
    """One model of random weights and everything that a decode step needs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.streams = DecodeStreams(self.device) if self.device.type == "cuda" else None
        self.spec = spec = synthetic_spec(TINY if settings.is_tiny else FLAGSHIP, settings.layers)
        self.num_banks = settings.banks or self._fitting_banks()
        _say(f"filling {self.num_banks} of {spec.num_layers} host banks")
        self.store = random_store(spec, self.num_banks)
        if self.streams is not None:
            _say("pinning them")
            self.store.pin()
        self.bandwidths: Bandwidths = measure_bandwidths(self.device)
        self._switch = _RouteSwitch(select_ops(self.device))
        most_rows = max(settings.rows)
        num_steps = _FILL_STEPS + settings.steps
        self.routings = {
            rows: InjectedRouting(hit_rate_trace(spec, num_steps, rows, settings.hit_rate), self.device)
            for rows in range(1, most_rows + 1)
        }
        num_pages = -(-(settings.position + 1) // PAGE_TOKENS)
        self.inputs = DecodeInputs(most_rows, num_pages * PAGE_TOKENS, self.device)
        self.pages = PagePool(spec, num_pages * most_rows, self.device, torch.float16)
        self.states = StatePool(spec, most_rows, self.device)
        _say("drawing dense weights")
        source: Any = RandomTensors(spec, self.device)
        bf16 = torch.bfloat16
        self.decoder = Decoder.build(spec, source, NAMES, self.device, bf16, residual_dtype=bf16, ops=self._switch.ops)

    def _fitting_banks(self) -> int:
        per_bank = experts_bytes(self.spec) // self.spec.num_layers
        return max(1, min(self.spec.num_layers, int(0.8 * psutil.virtual_memory().available) // per_bank))

    @property
    def dense_read_bytes(self) -> int:
        """What one step reads of the dense weights: all but the embedding, of which it reads a row."""
        return self.decoder.dense_bytes - 2 * self.spec.vocab_size * self.spec.hidden_size

    def on_compute_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self.streams is None else torch.cuda.stream(self.streams.compute)

    def report(self) -> dict[str, Any]:
        """Every arm, one policy after the other."""
        settings, spec = self.settings, self.spec
        return {
            "device": describe_device(self.device),
            "layers": spec.num_layers, "slots": settings.slots, "hit_rate_wanted": settings.hit_rate,
            "position": settings.position, "dense": "bf16",
            "host_banks": self.num_banks, "host_banks_are_shared": self.num_banks < spec.num_layers,
            "ngram_table_bytes": self.decoder.ngram_table_bytes,
            "dense_read_bytes": self.dense_read_bytes, "record_bytes": self.store.layouts[0].record_bytes,
            "host_to_device_gb_s": _giga(self.bandwidths.host_to_device),
            "device_read_gb_s": _giga(self.bandwidths.device_read),
            "policies": {policy: _Policy(self, policy, self._switch).report() for policy in settings.policies},
        }  # fmt: skip


class _RouteSwitch:
    """Ops whose router's choice is that of `routing` while it is set."""

    def __init__(self, ops: Ops) -> None:
        self.routing: InjectedRouting | None = None
        self._route = ops.route
        self.ops = replace(ops, route=self._injected)

    def _injected(self, logits: torch.Tensor, num_routed: int, renormalises: bool) -> Any:
        chosen = self._route(logits, num_routed, renormalises)
        return chosen if self.routing is None else (self.routing.next_layer(), chosen[1])


class _RoutedSteps(DecodeSteps):
    """The engine's steps, routed by the trace of their number of rows."""

    def __init__(self, bench: _Bench, experts: DeviceExperts, switch: _RouteSwitch) -> None:
        super().__init__(bench.decoder, bench.pages, bench.states, experts, bench.inputs, bench.streams)
        self._bench, self._switch = bench, switch

    def _launch(self, num_rows: int, branches: Branches) -> torch.Tensor:
        self._switch.routing = self._bench.routings[num_rows]
        self._switch.routing.begin_step()
        return super()._launch(num_rows, branches)


class _Policy:
    """All levels and numbers of rows under one policy, over one pool of slots."""

    def __init__(self, bench: _Bench, policy: str, switch: _RouteSwitch) -> None:
        self._bench, self._settings = bench, bench.settings
        spec, num_choices = bench.spec, bench.spec.moe.num_experts_per_token
        cache = DeviceSlots(
            spec.num_layers, spec.moe.num_experts, bench.settings.slots, policy,
            num_choices=num_choices, max_rows=max(bench.settings.rows), num_ring_slots=1, device=bench.device,
        )  # fmt: skip
        self._experts = DeviceExperts(bench.store, cache, switch.ops, bench.device, num_choices)
        levels = bench.settings.levels if bench.streams is not None else ("off",)
        self._steps: dict[OverlapLevel, _RoutedSteps] = {}
        self._vram_bytes: dict[str, int] = {}
        for level in levels:
            _say(f"{policy}, {level}: capturing")
            before = _free_vram(bench.device)
            steps = self._steps[level] = _RoutedSteps(bench, self._experts, switch)
            steps.build(level)
            self._vram_bytes[level] = before - _free_vram(bench.device)
        self._missed_bytes: dict[str, float] = {}
        self._hit_rates: dict[str, float] = {}

    def report(self) -> dict[str, Any]:
        with self._bench.on_compute_stream():
            by_rows = {str(rows): self._rows(rows) for rows in self._settings.rows}
            result: dict[str, Any] = {"graph_vram_bytes": self._vram_bytes, "rows": by_rows}
            if self._bench.streams is not None:
                # Branches that overlap would count twice: the serial sequence has the parts.
                result["split"] = {level: self._split(level) for level in self._steps if level == "off"}
                _say(json.dumps(result["split"]))
        return result

    def _rows(self, rows: int) -> dict[str, Any]:
        arms: dict[str, Callable[[], float]] = {level: partial(self._time, level, rows) for level in self._steps}
        medians = interleaved(arms, self._settings.rounds)
        found = {level: self._arm(level, rows, seconds) for level, seconds in medians.items()}
        # Whoever stops the bench early has what was measured so far.
        _say(json.dumps({"policy": self._experts.cache.policy, "rows": rows, **found}))
        return found

    def _arm(self, level: str, rows: int, seconds: float) -> dict[str, Any]:
        key = f"{level} {rows}"
        bandwidths, missed_bytes = self._bench.bandwidths, self._missed_bytes[key]
        result: dict[str, Any] = {
            "ms_per_step": 1e3 * seconds,
            "tok_s": rows / seconds,
            "hit_rate": self._hit_rates[key],
            "missed_bytes_per_step": missed_bytes,
        }
        if bandwidths.host_to_device and bandwidths.device_read:
            copy_s = missed_bytes / bandwidths.host_to_device
            dense_s = self._bench.dense_read_bytes / bandwidths.device_read
            result |= {
                "floor_ms": {"missed": 1e3 * copy_s, "dense": 1e3 * dense_s},
                "ratio_to_floor": seconds / (copy_s + dense_s),
            }
        return result

    def _start(self, level: OverlapLevel, rows: int) -> Callable[[], object]:
        """Slots and trace at their start, then enough steps to fill them; returns one more step."""
        self._experts.cache.reset()
        self._bench.routings[rows].rewind()
        self._bench.inputs.fill_at(rows, self._settings.position)

        def run() -> object:
            return self._steps[level].launch(rows)

        for _ in range(_FILL_STEPS):
            run()
        return run

    def _time(self, level: OverlapLevel, rows: int) -> float:
        run, counters, key = self._start(level, rows), self._experts.cache.state.counters, f"{level} {rows}"
        before = counters.tolist()
        seconds = time_runs(run, self._settings.steps, self._bench.device) / self._settings.steps
        routed, missed, num_bytes = (
            (now - then) / self._settings.steps for now, then in zip(counters.tolist(), before, strict=True)
        )
        self._missed_bytes[key], self._hit_rates[key] = num_bytes, 1.0 - missed / routed
        return seconds

    def _split(self, level: OverlapLevel) -> dict[str, Any]:
        run = self._start(level, 1)
        kernels = profile_kernels(lambda: [run() for _ in range(_PROFILED_STEPS)])
        span = max(kernel.end_us for kernel in kernels) - min(kernel.begin_us for kernel in kernels)
        return {
            "us_per_step": {part: round(us, 1) for part, us in split_by_part(kernels, _PROFILED_STEPS).items()},
            "launches_per_step": len(kernels) / _PROFILED_STEPS,
            "profiled_us_per_step": span / _PROFILED_STEPS,
            "kernels_us_and_launches": {
                name: [round(value, 1) for value in values]
                for name, values in split_by_name(kernels, _PROFILED_STEPS, 40).items()
            },
        }


def _free_vram(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def _giga(rate: float | None) -> float | None:
    return None if rate is None else rate / 1e9


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    print(json.dumps(_Bench(parse()).report(), indent=1))


if __name__ == "__main__":
    main()
