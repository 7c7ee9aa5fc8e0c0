"""The shipped demo model on a GPU: its numbers against the CPU's, its path at every overlap level, its limits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.execute.decode_graph import DecodeSteps
from runtime.execute.overlap import LEVELS
from runtime.execute.placement import Placement
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.trace import read_trace
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import Cancel, Cancelled, ChatMessage, Generate, Score, StartTrace, StopTrace
from tests.support.demo_scores import demo_texts, logits_of
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver

CUDA = EngineOptions(DEMO_FOLDER, device="cuda", num_slots=96, chunk_tokens=256)
CPU = replace(CUDA, device="cpu")
NUM_TEXTS, NUM_TOKENS = 20, 200
STORY = (ChatMessage("user", "Tell me a short story about a lighthouse."),)


@pytest.fixture(scope="module")
def on_cuda() -> EngineDriver:
    return EngineDriver(CUDA)


@pytest.fixture(scope="module")
def texts(on_cpu: EngineDriver) -> list[tuple[int, ...]]:
    return demo_texts(on_cpu, NUM_TEXTS, NUM_TOKENS)


@pytest.fixture(scope="module")
def on_cpu() -> EngineDriver:
    return EngineDriver(CPU)


def parts_of(driver: EngineDriver) -> tuple[DecodeSteps, DeviceExperts]:
    model = driver.engine._model
    assert model is not None
    assert model.forward._decode_steps is not None
    assert isinstance(model.experts, DeviceExperts)
    return model.forward._decode_steps, model.experts


@pytest.mark.parametrize("by_decode", [True, False])
def test_bf16_keeps_to_the_cpu(
    on_cuda: EngineDriver, on_cpu: EngineDriver, texts: list[tuple[int, ...]], tmp_path: Path, by_decode: bool
) -> None:
    """Of 4,000 positions 98 % have the CPU's best token, the others a gap below 0.15; mean divergence <= 0.005."""
    share, largest_gap, divergence = compare(on_cuda, on_cpu, texts, tmp_path, by_decode)
    assert share >= 0.98
    assert largest_gap < 0.15
    assert divergence.mean() <= 0.005


@pytest.mark.parametrize("by_decode", [True, False])
def test_narrow_keys_and_values_keep_to_the_twins(
    texts: list[tuple[int, ...]], tmp_path: Path, by_decode: bool
) -> None:
    """fp16, as larger models have them. Against the same formats on the CPU nothing but round-off is left."""
    narrow = EngineDriver(CUDA, Placement.of("cuda", CUDA, has_wide_kv=False))
    twin = EngineDriver(CPU, Placement.on_cpu_as_on_cuda())
    share, largest_gap, divergence = compare(narrow, twin, texts, tmp_path, by_decode)
    assert share >= 0.98
    assert largest_gap < 0.15
    assert divergence.mean() <= 1e-6


def compare(
    ours: EngineDriver, theirs: EngineDriver, texts: list[tuple[int, ...]], folder: Path, by_decode: bool
) -> tuple[float, float, torch.Tensor]:
    """Share of positions with their best token, the others' largest gap in their log-probabilities, all divergences.

    They read in chunks; where a best token differs they decode that text, too: which experts a near-tie takes hangs on
    round-off alone, and where their two readings part, both are right.
    """
    divergences, gaps, num_same = [], [], 0
    for number, ids in enumerate(texts):
        found = log_probs(ours, ids, folder / f"ours{number}.safetensors", by_decode)
        expected = log_probs(theirs, ids, folder / f"theirs{number}.safetensors", False)
        if not torch.equal(expected.argmax(-1), found.argmax(-1)):
            decoded = log_probs(theirs, ids, folder / f"decoded{number}.safetensors", True)
            is_nearer = divergence_of(decoded, found) < divergence_of(expected, found)
            expected = torch.where(is_nearer[:, None], decoded, expected)
        divergences.append(divergence_of(expected, found))
        same = expected.argmax(-1) == found.argmax(-1)
        num_same += int(same.sum())
        best = expected.max(-1).values
        gaps += (best - expected.gather(1, found.argmax(-1, keepdim=True)).squeeze(1))[~same].tolist()
    divergence = torch.cat(divergences)
    share, largest_gap = num_same / len(divergence), max(gaps, default=0.0)
    report = {"argmax": share, "mean_kl": float(divergence.mean()), "max_kl": float(divergence.max())}
    print(json.dumps(report | {"largest_gap": largest_gap, "by_decode": by_decode}))
    return share, largest_gap, divergence


def log_probs(driver: EngineDriver, ids: tuple[int, ...], path: Path, by_decode: bool) -> torch.Tensor:
    return logits_of(driver, ids, path, by_decode).double().log_softmax(-1)


def divergence_of(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """KL per position, of log-probabilities (positions, tokens)."""
    return (expected.exp() * (expected - found)).sum(-1)


def test_levels_are_identical_in_every_byte(
    on_cuda: EngineDriver, texts: list[tuple[int, ...]], tmp_path: Path
) -> None:
    steps, experts = parts_of(on_cuda)
    before, found = steps.level, []
    for level in LEVELS:
        steps.build(level, warms_up=False)
        experts.cache.reset()
        found.append(logits_of(on_cuda, texts[0], tmp_path / f"{level}.safetensors", True))
    steps.build(before, warms_up=False)
    assert all(torch.equal(logits, found[0]) for logits in found)


def test_slots_and_hits_are_the_cpus(on_cuda: EngineDriver, on_cpu: EngineDriver) -> None:
    """The same greedy answer from empty slots misses the same number of experts."""
    answers = []
    for driver in (on_cuda, on_cpu):
        model = driver.engine._model
        assert model is not None
        model.experts.clear()
        before = model.stats()
        answers.append((driver.ask("count", STORY, max_tokens=24), before, model.stats()))
    (ours, our_before, our_after), (theirs, their_before, their_after) = answers
    assert ours.generated_ids == theirs.generated_ids
    assert our_after.num_routed - our_before.num_routed == their_after.num_routed - their_before.num_routed
    parts_of(on_cuda)[1].check_integrity()


@pytest.mark.parametrize("num_tokens", [1, 2, 5, 63, 64, 65, 257, 1000])
def test_prefill_of_every_length(on_cuda: EngineDriver, on_cpu: EngineDriver, num_tokens: int, tmp_path: Path) -> None:
    ids = tuple(1000 + (7 * i) % 3000 for i in range(num_tokens))
    expected = logits_of(on_cpu, ids, tmp_path / "cpu.safetensors", False).double().log_softmax(-1)
    found = logits_of(on_cuda, ids, tmp_path / "cuda.safetensors", False).double().log_softmax(-1)
    assert (expected.exp() * (expected - found)).sum(-1).mean() <= 0.005


def test_prefill_keeps_the_decode_slots(on_cuda: EngineDriver) -> None:
    on_cuda.ask("fill", STORY, max_tokens=40)
    _, experts = parts_of(on_cuda)
    before = experts.cache.state.owner.clone()
    used = before >= 0
    ids = tuple(100 + (11 * i) % 5000 for i in range(700))
    on_cuda.run(Score("long", token_ids=ids))
    assert torch.equal(experts.cache.state.owner[used], before[used])
    experts.check_integrity()


def test_cancelling_takes_one_chunk(on_cuda: EngineDriver) -> None:
    words = " ".join(f"word{i}" for i in range(1500))
    on_cuda.send(Generate("cancelled", (ChatMessage("user", words),), SamplingOptions(max_tokens=5), thinking=False))
    on_cuda.step(1)
    on_cuda.send(Cancel("cancelled"))
    assert isinstance(on_cuda.events_of("cancelled")[-1], Cancelled)
    on_cuda.settle()
    assert on_cuda.ask("after", STORY, max_tokens=4).generated_ids


def test_stats_say_what_the_gpu_holds(on_cuda: EngineDriver) -> None:
    model = on_cuda.engine._model
    assert model is not None
    stats = model.stats()
    assert stats.device == "cuda"
    assert stats.vram_used_bytes is not None
    assert stats.vram_used_bytes >= parts_of(on_cuda)[1].pool.nbytes
    assert stats.vram_headroom_bytes is not None
    assert stats.overlap_level in LEVELS
    print(json.dumps({"level": stats.overlap_level, "used": stats.vram_used_bytes, "free": stats.vram_headroom_bytes}))


def test_a_trace_of_a_graph(on_cuda: EngineDriver, tmp_path: Path) -> None:
    on_cuda.send(StartTrace("start", str(tmp_path / "routing.trace")))
    finished = on_cuda.ask("traced", STORY, max_tokens=10)
    on_cuda.send(StopTrace("stop"))
    assert read_trace(tmp_path / "routing.trace").num_steps == len(finished.generated_ids) - 1
