"""Decode with experts on the disk against decode with all of them in memory: time, bytes, memory, and the same logits.

A token's time is held against that of the same slots with all experts in memory plus the bytes the kernel says came
from the disk, at the rate that the disk gives for the same reads in the same run. On a CPU computing hides
much of that, so the misses of a layer are timed alone, too. On a GPU the time is held against disk and PCIe alone as
well, for the bytes of both. Direct reads bypass the page cache;
where the kernel counts none, the figure is marked as not verified. Linux.

Example: python scripts/make_checkpoint.py qwen3_next modelopt --size geometry --layers 4 --out /tmp/next4
         python scripts/bench_mapped.py /tmp/next4 --ram 4GiB --slots 400
"""

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Run as a file, Python looks for imports beside it, not in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from safetensors.torch import load_file

from runtime.benches.process_counts import cpu_seconds_of, disk_bytes_of, held_bytes_of, peak_bytes_of
from runtime.checkpoint.facts import read_facts
from runtime.client import EngineClient, child_environment
from runtime.execute.opened_model import ModelFolder
from runtime.experts.mapped_store import MappedStore
from runtime.memory.disk_rate import measure_disk_rate
from runtime.memory.rates import COPY_SHARE, RatesQuestion, measure_rates
from runtime.options import EngineOptions, parse_size
from runtime.protocol import EngineStats, Score
from runtime.record import DISK_BLOCK_BYTES, RecordLayout, whole_blocks

BOUND = 1.3
LEAST_COUNTED = 0.98
"""Of what the engine asked for, what the kernel must have counted for the figure to be verified."""
NUM_RATE_READS = 240


@dataclass(frozen=True)
class Run:
    """Decode of the same tokens over one store."""

    seconds: float
    cpu_seconds: float
    """Of the engine process: other programs don't lengthen it."""
    stats: EngineStats
    disk_bytes: int
    """The kernel's count while the tokens were decoded."""
    asked_bytes: int
    """The engine's own count of the same."""
    missed_bytes: int
    """Copied into slots."""


def measure(options: EngineOptions, ram: str, num_tokens: int, rounds: int, cache_dir: Path) -> dict[str, Any]:
    """All figures by name. Both engines run all the time and decode the same tokens in turns, the disk in between: what
    else the machine does is the same for all three of a round."""
    folder = options.model_path
    options = replace(options, context_tokens=max(256, num_tokens))
    limited = replace(options, ram_bytes=parse_size(ram), cache_dir=cache_dir)
    facts, rng = read_facts(folder), random.Random(0)
    texts = [tuple(rng.choices(range(facts.vocab_size), k=num_tokens)) for _ in range(rounds + 1)]
    # Both start with empty slots, as the one that keeps nothing does.
    shutil.rmtree(cache_dir / "residents", ignore_errors=True)
    pinned, mapped, rates, miss_rates = [], [], [], []
    with running(limited) as from_disk, running(options) as from_memory:
        for client in (from_disk, from_memory):
            # The first tokens fill slots and cache, as the first answer of a chat does.
            decode(client, texts[0])
        for text in texts[1:]:
            mapped.append(decode(from_disk, text))
            rates.append(record_file_rate(cache_dir, facts.weights.record_bytes))
            miss_rates.append(misses_alone(folder, cache_dir))
            pinned.append(decode(from_memory, text))
        checked = [
            logits(client, texts[0], cache_dir / f"{number}.safetensors")
            for number, client in enumerate((from_disk, from_memory))
        ]
        peaks = [peak_bytes_of(client.process_id or 0) for client in (from_disk, from_memory)]
        held = held_bytes_of(from_disk.process_id or 0)
    figures = report(pinned, mapped, rates, miss_rates, num_tokens)
    figures |= {"logits_equal": torch.equal(*checked), "peak_bytes": peaks[0], "ram_bytes": parse_size(ram)}
    figures |= {"peak_bytes_all_in_memory": peaks[1], "held_bytes": held}
    return figures | (against_links(figures, mapped, num_tokens) if options.device == "cuda" else {})


def against_links(figures: dict[str, Any], mapped: list[Run], num_tokens: int) -> dict[str, Any]:
    """The time of a token on a card against what disk and PCIe alone take for its bytes."""
    question = RatesQuestion("cuda", 0, 0, 0, "", 0)
    copy_rate = measure_rates(question, child_environment()).copy_bytes_s / COPY_SHARE
    missed_bytes = statistics.median(run.missed_bytes for run in mapped) / num_tokens
    links_ms = 1e3 * (figures["disk_bytes_per_token"] / figures["disk_rate"] + missed_bytes / copy_rate)
    return {
        "missed_bytes_per_token": missed_bytes,
        "copy_rate": copy_rate,
        "ms_by_links": links_ms,
        "ratio_to_links": figures["ms_per_token"] / links_ms,
        "is_within_bound_of_links": figures["ms_per_token"] <= BOUND * links_ms,
    }


@contextmanager
def running(options: EngineOptions) -> Iterator[EngineClient]:
    client = EngineClient(options)
    try:
        client.start()
        client.load()
        yield client
    finally:
        client.close()


def decode(client: EngineClient, tokens: tuple[int, ...]) -> Run:
    assert client.process_id is not None
    before, stats_before = disk_bytes_of(client.process_id), client.stats()
    cpu_before = cpu_seconds_of(client.process_id)
    scored = client.score(Score("timed", token_ids=tokens, by_decode=True))
    stats = client.stats()
    return Run(
        scored.seconds,
        cpu_seconds_of(client.process_id) - cpu_before,
        stats,
        disk_bytes_of(client.process_id) - before,
        stats.num_disk_bytes - stats_before.num_disk_bytes,
        stats.num_missed_bytes - stats_before.num_missed_bytes,
    )


def logits(client: EngineClient, tokens: tuple[int, ...], path: Path) -> torch.Tensor:
    client.score(Score("checked", token_ids=tokens, by_decode=True, logits_path=str(path)))
    return load_file(path)["logits"]


def record_file_rate(cache_dir: Path, record_bytes: int) -> float:
    """Of direct reads of whole records here and there."""
    [file] = (cache_dir / "records").glob("*.records")
    stride = whole_blocks(record_bytes)
    num_records = (file.stat().st_size - DISK_BLOCK_BYTES) // stride
    chosen = random.Random(1).choices(range(num_records), k=NUM_RATE_READS)
    return measure_disk_rate(file, [DISK_BLOCK_BYTES + number * stride for number in chosen], stride)


def misses_alone(folder: Path, cache_dir: Path) -> float:
    """Bytes per second at which the store brings a layer's misses into slots, a batch of random experts at a time."""
    # Threads of one copy would wait for each other wherever something else runs.
    torch.set_num_threads(1)
    model = ModelFolder(folder)
    layouts, num_experts = RecordLayout.of_layers(model.spec), model.spec.moe.num_experts
    reader, _ = model.open_records(cache_dir, lambda done, total: None)
    batch = model.spec.moe.num_experts_per_token
    store = MappedStore(reader, layouts, num_experts, 4 * batch)
    slots = torch.zeros(batch, layouts[0].record_bytes, dtype=torch.uint8)
    rng = random.Random(2)
    started_s = time.perf_counter()
    for number in range(NUM_RATE_READS // batch):
        layer, experts = number % store.num_layers, rng.sample(range(num_experts), batch)
        store.announce(layer, experts)
        for slot, expert in zip(slots, experts, strict=True):
            slot.copy_(store.record(layer, expert))
    return store.num_disk_bytes / (time.perf_counter() - started_s)


def report(
    pinned: list[Run],
    mapped: list[Run],
    rates: list[float],
    miss_rates: list[float],
    num_tokens: int,
) -> dict[str, Any]:
    last = mapped[-1]
    in_memory_ms = 1e3 * statistics.median(run.seconds for run in pinned) / num_tokens
    mapped_ms = 1e3 * statistics.median(run.seconds for run in mapped) / num_tokens
    disk_rate = statistics.median(rates)
    disk_bytes = statistics.median(run.disk_bytes for run in mapped) / num_tokens
    model_ms = in_memory_ms + 1e3 * disk_bytes / disk_rate
    ratios = [
        run.seconds / (other.seconds + run.disk_bytes / rate)
        for run, other, rate in zip(mapped, pinned, rates, strict=True)
    ]
    return {
        "ms_per_token": mapped_ms,
        "ms_per_token_all_in_memory": in_memory_ms,
        "cpu_ms_per_token": 1e3 * statistics.median(run.cpu_seconds for run in mapped) / num_tokens,
        "cpu_ms_per_token_all_in_memory": 1e3 * statistics.median(run.cpu_seconds for run in pinned) / num_tokens,
        "disk_bytes_per_token": disk_bytes,
        "disk_bytes_verified": last.disk_bytes >= LEAST_COUNTED * last.asked_bytes,
        "disk_rate": disk_rate,
        "disk_rate_of_misses": statistics.median(miss_rates),
        "misses_ratio": statistics.median(rate / own for rate, own in zip(rates, miss_rates, strict=True)),
        "ms_by_disk_and_memory": model_ms,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "is_within_bound": statistics.median(ratios) <= BOUND,
        "slots": last.stats.num_slots,
        "cached_records": last.stats.num_cached_records,
        "experts": last.stats.num_experts,
        "slot_hit_rate": last.stats.slot_hit_rate,
        "slot_hit_rate_all_in_memory": pinned[-1].stats.slot_hit_rate,
        "ram_hit_rate": last.stats.ram_hit_rate,
        "disk_share": last.stats.disk_rate,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ram", default="4GiB", help="what the engine may plan with; less than the checkpoint")
    parser.add_argument("--slots", type=int, default=400)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, help="where the record file lies or is made; default: made and removed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder.parent) as scratch:
        cache_dir = arguments.cache or Path(scratch)
        options = EngineOptions(arguments.folder, device=arguments.device, num_slots=arguments.slots)
        figures = measure(options, arguments.ram, arguments.tokens, arguments.rounds, cache_dir)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
