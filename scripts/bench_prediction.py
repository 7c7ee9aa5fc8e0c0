"""Predicted against measured tokens per second in one run: the demo model on this CPU, or the flagship's geometry.

`demo` answers everyday chats in the real engine process at several slot counts, and measures the machine's rates before
and after each; a busy machine is judged by the processor time of both. `flagship` runs `hotslot bench decode` (random
weights, one row, overlap `shared`) at several slot counts with the hit rates that the prediction expects there, and
predicts from the bandwidths that the bench measured. Prints one JSON line per slot count; exit status 1 if any is off
by more than 25 %.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import psutil

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

# The repository's own packages, wherever the script is started from.
from runtime.benches.synthetic import FLAGSHIP, synthetic_spec  # noqa: E402
from runtime.checkpoint.facts import read_facts  # noqa: E402
from runtime.client import EngineClient, child_environment  # noqa: E402
from runtime.memory.budget import Machine, plan  # noqa: E402
from runtime.memory.probe import probe_machine  # noqa: E402
from runtime.memory.rates import MachineRates, RatesQuestion, card_rates, measure_rates  # noqa: E402
from runtime.memory.speed import expected_hit_rate, forecast  # noqa: E402
from runtime.options import EngineOptions  # noqa: E402
from runtime.protocol import ChatMessage, Finished, Generate, PromptAccepted  # noqa: E402
from scripts.bench_policy import everyday_chats  # noqa: E402

BOUND = 0.25
DEMO = REPO / "assets" / "demo-model"
DEMO_SLOTS = (48, 96, 288)
FLAGSHIP_SLOTS = (1650, 3072, 6144)
"""Of 24,576: 6.7, 12.5 and 25 %."""
_GIB = 1 << 30
_NUM_CHATS, _NUM_TOKENS = 3, 64


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


def flagship_arms(bench_options: list[str]) -> Iterator[dict[str, Any]]:
    """One report per slot count."""
    spec = synthetic_spec(FLAGSHIP, FLAGSHIP["num_hidden_layers"])
    for num_slots in FLAGSHIP_SLOTS:
        hit_rate = expected_hit_rate(spec, num_slots)
        command = [sys.executable, "-m", "runtime.benches.decode", "--rows", "1", "--levels", "shared"]
        command += ["--policies", "rule", "--dense", "bf16", "--slots", str(num_slots)]
        command += ["--hit-rate", str(hit_rate.value), *bench_options]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPO)
        report = json.loads(ended.stdout)
        [arm] = report["arms"]
        rates = card_rates(
            1e9 * report["device_read_gb_s"], 1e9 * report["host_to_device_gb_s"], "measured in this run"
        )
        machine = Machine("cuda", 140 * _GIB, 256 * _GIB, 250 * _GIB, 16)
        options = EngineOptions(Path(), device="cuda", num_slots=num_slots)
        predicted = forecast(spec, plan(spec, machine, options), rates)
        yield {
            "slots": num_slots,
            "predicted_tok_s": predicted.tok_s,
            "measured_tok_s": arm["tok_s"],
            "predicted_ms": 1e3 * predicted.step_s,
            "measured_ms": arm["ms_per_step"],
            "expected_hit_rate": hit_rate.value,
            "measured_hit_rate": arm["hit_rate"],
            "device": report["device"],
        }


def _decode(options: EngineOptions) -> tuple[float, float, float]:
    """Tokens per second of decode by the clock and by the engine's processor time, and its hit rate."""
    seconds, cpu_s, num_steps = 0.0, 0.0, 0
    with EngineClient(options) as client:
        loaded = client.load()
        process = psutil.Process(client.process_id)
        for number, turns in enumerate(everyday_chats()[:_NUM_CHATS]):
            sampling = replace(loaded.default_sampling, seed=number, max_tokens=_NUM_TOKENS)
            request = Generate(f"chat-{number}", (ChatMessage("user", turns[0]),), sampling, thinking=False)
            started_cpu_s: float | None = None
            for event in client.generate(request):
                if started_cpu_s is None and not isinstance(event, PromptAccepted) and hasattr(event, "text"):
                    started_cpu_s = _cpu_s(process)
                if isinstance(event, Finished):
                    tokens = event.usage.completion_tokens - 1
                    assert started_cpu_s is not None
                    num_steps += tokens
                    seconds += tokens / event.stats.decode_tok_s
                    cpu_s += _cpu_s(process) - started_cpu_s
        stats = client.stats()
    return num_steps / seconds, num_steps / cpu_s, 1 - stats.num_missed / stats.num_routed


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _mean_rates(one: MachineRates, other: MachineRates) -> MachineRates:
    """Of times, not of rates."""
    names = ("dense_bytes_s", "expert_bytes_s", "copy_bytes_s")
    harmonic = {name: 2 / (1 / getattr(one, name) + 1 / getattr(other, name)) for name in names}
    return MachineRates(**harmonic, unit_s=mean((one.unit_s, other.unit_s)), origin=one.origin)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=("demo", "flagship"))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of the demo; cpu on a busy machine")
    parser.add_argument("bench_options", nargs="*", help="for `hotslot bench decode`, after --")
    given = parser.parse_args()
    is_good = True
    for arm in demo_arms(given.clock) if given.model == "demo" else flagship_arms(given.bench_options):
        off = arm["predicted_tok_s"] / arm["measured_tok_s"] - 1
        is_good &= abs(off) <= BOUND
        print(json.dumps({key: _rounded(value) for key, value in {**arm, "off": off}.items()}), flush=True)
    sys.exit(0 if is_good else 1)


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
