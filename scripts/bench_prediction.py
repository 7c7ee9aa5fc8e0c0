"""Predicted against measured tokens per second in one run: the demo model on this CPU, or the flagship's geometry.

`demo` answers everyday chats in the real engine process at several slot counts, and measures the machine's rates before
and after each; a busy machine is judged by the processor time of both. `mapped` does the same with less memory than
experts, by the clock. `flagship` runs decode's own graphs with random
weights on a card (one row, overlap `shared`) at several slot counts, routed so that the hit rates are those that the
prediction expects there, and predicts from the card's bandwidths, measured in the same run. Prints one JSON line per
slot count; exit status 1 if any is off by more than 25 %.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

# The repository's own packages, wherever the script is started from.
from runtime.benches.decode_rig import Rig, RoutedSteps  # noqa: E402
from runtime.benches.injection import InjectedRouting  # noqa: E402
from runtime.benches.machine_rates import begins_early  # noqa: E402
from runtime.benches.measures import describe_device, measure_bandwidths, time_runs  # noqa: E402
from runtime.benches.process_counts import cpu_seconds_of  # noqa: E402
from runtime.benches.synthetic import FLAGSHIP, TINY, StoreFilling, synthetic_spec  # noqa: E402
from runtime.benches.traces import hit_rate_trace  # noqa: E402
from runtime.checkpoint.facts import read_facts  # noqa: E402
from runtime.client import EngineClient, child_environment  # noqa: E402
from runtime.execute.overlap import OverlapLevel  # noqa: E402
from runtime.execute.streams import DecodeStreams  # noqa: E402
from runtime.memory.budget import RAM_MARGIN_BYTES, Machine, plan  # noqa: E402
from runtime.memory.disk_rate import quick_disk_rate  # noqa: E402
from runtime.memory.probe import probe_machine  # noqa: E402
from runtime.memory.process_base import measure_process_base  # noqa: E402
from runtime.memory.rates import MachineRates, RatesQuestion, card_rates, measure_rates, typical_rates  # noqa: E402
from runtime.memory.speed import expected_hit_rate, forecast  # noqa: E402
from runtime.options import EngineOptions  # noqa: E402
from runtime.protocol import ChatMessage, Finished, Generate, PromptAccepted  # noqa: E402
from scripts.bench_policy import everyday_chats  # noqa: E402

BOUND = 0.25
DEMO = REPO / "assets" / "demo-model"
DEMO_SLOTS = (48, 96, 288)
MAPPED_SLOTS = (48, 96, 144)
MAPPED_SPARE_BYTES = 4 << 20
"""For the host cache beside its fewest records."""
FLAGSHIP_SLOTS = (1650, 3072, 6144)
"""Of 24,576: 6.7, 12.5 and 25 %."""
_GIB = 1 << 30
_NUM_CHATS, _NUM_TOKENS = 3, 64
_NUM_BANKS = 4
"""Of the host; layers share them in turn."""
_POSITION = 4096
_FILL_STEPS, _NUM_WINDOWS, _WINDOW_STEPS = 10, 5, 6


def demo_arms(clock: str) -> Iterator[dict[str, Any]]:
    """One report per slot count; `clock` is wall or cpu."""
    spec = read_facts(DEMO)
    question = RatesQuestion.of(spec, "cpu", 1)
    for num_slots in DEMO_SLOTS:
        options = EngineOptions(DEMO, device="cpu", num_slots=num_slots, num_threads=1)
        before = measure_rates(question, child_environment())
        wall_tok_s, cpu_tok_s, hit_rate = _decode(options)
        rates = _mean_rates(before, measure_rates(question, child_environment()))
        predicted = forecast(spec, plan(spec, probe_machine(options), options), rates)
        yield {
            "slots": num_slots,
            "predicted_tok_s": predicted.tok_s,
            "measured_tok_s": wall_tok_s if clock == "wall" else cpu_tok_s,
            "measured_wall_tok_s": wall_tok_s,
            "measured_cpu_tok_s": cpu_tok_s,
            "expected_hit_rate": predicted.hit_rate.value,
            "measured_hit_rate": hit_rate,
        }


def mapped_arms(cache_dir: Path) -> Iterator[dict[str, Any]]:
    """The demo model with a part of its experts on the disk, whose rate is measured for reads of its record file."""
    spec, base = read_facts(DEMO), measure_process_base(child_environment())
    question = RatesQuestion.of(spec, "cpu", 1)
    for num_slots in MAPPED_SLOTS:
        options = EngineOptions(DEMO, device="cpu", num_slots=num_slots, num_threads=1, cache_dir=cache_dir)
        machine = probe_machine(options, *base)
        least = plan(spec, replace(machine, ram_available_bytes=0), options)
        ram_bytes = least.host_bytes + least.device_bytes + RAM_MARGIN_BYTES + MAPPED_SPARE_BYTES
        options = replace(options, ram_bytes=ram_bytes, starts_warm=False)
        budget = plan(spec, probe_machine(options, *base), options)
        with EngineClient(options) as client:
            # The first start makes the record file.
            client.load()
        before = measure_rates(question, child_environment())
        wall_tok_s, _, hit_rate = _decode(options)
        rates = _mean_rates(before, measure_rates(question, child_environment()))
        disk_bytes_s = quick_disk_rate(tuple(cache_dir.glob("records/*.records")), spec.weights.record_bytes)
        predicted = forecast(spec, budget, replace(rates, disk_bytes_s=disk_bytes_s or rates.disk_bytes_s))
        yield {
            "slots": num_slots,
            "cached_records": budget.num_cached_records,
            "predicted_tok_s": predicted.tok_s,
            "measured_tok_s": wall_tok_s,
            "disk_bytes_s": disk_bytes_s,
            "predicted_disk_share_of_time": predicted.disk_s / predicted.step_s,
            "expected_hit_rate": predicted.hit_rate.value,
            "measured_hit_rate": hit_rate,
        }


class _FlagshipBench:
    """One model of random weights, decoded with one row at overlap `shared`, over any number of slots."""

    def __init__(self, config: dict[str, Any], num_banks: int) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        is_cuda = self.device.type == "cuda"
        self.spec = synthetic_spec(config, config["num_hidden_layers"])
        self._level: OverlapLevel = "shared" if is_cuda else "off"
        filling = StoreFilling(self.spec, num_banks, is_pinned=is_cuda)
        self._rig = Rig(self.spec, "bf16", 1, _POSITION, self.device, DecodeStreams(self.device) if is_cuda else None)
        self._filling, self._store = filling, filling.store()
        self.bandwidths = measure_bandwidths(self.device)

    def seconds(self, num_slots: int, hit_rate: float) -> tuple[float, float]:
        """Of one step, the median of a few windows; and the hit rate that came of it."""
        num_steps = _FILL_STEPS + _NUM_WINDOWS * _WINDOW_STEPS
        trace = hit_rate_trace(self.spec, "rule", num_slots, num_steps, 1, hit_rate)
        routing = InjectedRouting(trace, self.device, self.spec.moe.num_experts)
        experts = self._rig.experts(self._store, "rule", num_slots)
        steps = RoutedSteps(self._rig, experts, {1: routing})
        steps.build(self._level, most_rows=1)
        experts.cache.reset()
        routing.rewind()
        with self._rig.on_compute_stream():
            self._rig.inputs.fill_at(1, _POSITION)
            for _ in range(_FILL_STEPS):
                steps.launch(1)
            before = experts.cache.state.counters.tolist()
            windows = [
                time_runs(lambda: steps.launch(1), _WINDOW_STEPS, self.device) / _WINDOW_STEPS
                for _ in range(_NUM_WINDOWS)
            ]
            routed, missed, _ = (
                now - then for now, then in zip(experts.cache.state.counters.tolist(), before, strict=True)
            )
        return median(windows), 1 - missed / routed


def flagship_arms(is_tiny: bool) -> Iterator[dict[str, Any]]:
    """One report per slot count. `is_tiny`: a tiny geometry, to see it run."""
    bench = _FlagshipBench(TINY if is_tiny else FLAGSHIP, 2 if is_tiny else _NUM_BANKS)
    spec, found = bench.spec, bench.bandwidths
    rates = typical_rates(RatesQuestion.of(spec, "cuda", 1))
    if found.device_read and found.host_to_device:
        is_early = begins_early(bench.device)
        rates = card_rates(found.device_read, found.host_to_device, "measured in this run", is_early)
    machine = Machine("cuda", 140 * _GIB, 256 * _GIB, 250 * _GIB, 16)
    for num_slots in (24, 48, 72) if is_tiny else FLAGSHIP_SLOTS:
        hit_rate = expected_hit_rate(spec, num_slots)
        seconds, measured_hit_rate = bench.seconds(num_slots, hit_rate.value)
        options = EngineOptions(Path(), device="cuda", num_slots=num_slots)
        predicted = forecast(spec, plan(spec, machine, options), rates)
        yield {
            "slots": num_slots,
            "predicted_tok_s": predicted.tok_s,
            "measured_tok_s": 1 / seconds,
            "predicted_ms": 1e3 * predicted.step_s,
            "measured_ms": 1e3 * seconds,
            "expected_hit_rate": hit_rate.value,
            "measured_hit_rate": measured_hit_rate,
            "device": describe_device(bench.device),
        }


def _decode(options: EngineOptions) -> tuple[float, float, float]:
    """Tokens per second of decode by the clock and by the engine's processor time, and its hit rate."""
    seconds, cpu_s, num_steps = 0.0, 0.0, 0
    with EngineClient(options) as client:
        loaded = client.load()
        process_id = client.process_id
        assert process_id is not None
        for number, turns in enumerate(everyday_chats()[:_NUM_CHATS]):
            sampling = replace(loaded.default_sampling, seed=number, max_tokens=_NUM_TOKENS)
            request = Generate(f"chat-{number}", (ChatMessage("user", turns[0]),), sampling, thinking=False)
            started_cpu_s: float | None = None
            for event in client.generate(request):
                if started_cpu_s is None and not isinstance(event, PromptAccepted) and hasattr(event, "text"):
                    started_cpu_s = cpu_seconds_of(process_id)
                if isinstance(event, Finished):
                    tokens = event.usage.completion_tokens - 1
                    assert started_cpu_s is not None
                    num_steps += tokens
                    seconds += tokens / event.stats.decode_tok_s
                    cpu_s += cpu_seconds_of(process_id) - started_cpu_s
        stats = client.stats()
    return num_steps / seconds, num_steps / cpu_s, 1 - stats.num_missed / stats.num_routed


def _mean_rates(one: MachineRates, other: MachineRates) -> MachineRates:
    """Of times, not of rates."""
    names = ("dense_bytes_s", "expert_bytes_s", "copy_bytes_s")
    harmonic = {name: 2 / (1 / getattr(one, name) + 1 / getattr(other, name)) for name in names}
    return MachineRates(**harmonic, unit_s=mean((one.unit_s, other.unit_s)), origin=one.origin)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=("demo", "mapped", "flagship"))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of the demo; cpu on a busy machine")
    parser.add_argument("--tiny", action="store_true", help="a tiny geometry instead of the flagship's, on any machine")
    given = parser.parse_args()
    is_good = True
    with tempfile.TemporaryDirectory() as scratch:
        arms = {
            "demo": lambda: demo_arms(given.clock),
            "mapped": lambda: mapped_arms(Path(scratch)),
            "flagship": lambda: flagship_arms(given.tiny),
        }
        for arm in arms[given.model]():
            off = arm["predicted_tok_s"] / arm["measured_tok_s"] - 1
            is_good &= abs(off) <= BOUND
            print(json.dumps({key: _rounded(value) for key, value in {**arm, "off": off}.items()}), flush=True)
    sys.exit(0 if is_good else 1)


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
