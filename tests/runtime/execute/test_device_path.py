"""The engine as it runs on a GPU, with torch's ops on a CPU: slot map and inputs in tensors, decode that asks the host
for nothing. It must say and count what the CPU's engine does."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from runtime.cache.page_pool import PagePool
from runtime.errors import EngineError, UsageError
from runtime.execute.engine import Engine
from runtime.execute.load import load_model
from runtime.execute.placement import Placement
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.store import PinnedStore
from runtime.experts.streamed import StreamedExperts
from runtime.experts.trace import read_trace
from runtime.layers.decoder import Decoder
from runtime.options import EngineOptions
from runtime.protocol import (
    ChatMessage,
    Event,
    LoadFailed,
    LoadModel,
    LoadProgressed,
    Score,
    Scored,
    StartTrace,
    StopTrace,
)
from tests.support.demo_scores import logits_of
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = EngineOptions(DEMO_FOLDER, device="cpu", num_slots=96)
STORY = (ChatMessage("user", "Tell me a short story about a lighthouse."),)
TEXT = "The lighthouse stood at the edge of the sea. Every night its keeper climbed the stairs and lit the lamp."


@pytest.fixture(scope="module")
def on_cpu() -> EngineDriver:
    return EngineDriver(OPTIONS)


@pytest.fixture(scope="module")
def as_on_cuda() -> EngineDriver:
    return EngineDriver(OPTIONS, Placement.on_cpu_as_on_cuda())


def experts_of(driver: EngineDriver) -> DeviceExperts:
    assert driver.engine._model is not None
    experts = driver.engine._model.experts
    assert isinstance(experts, DeviceExperts)
    return experts


def test_two_turns_say_and_count_the_same(on_cpu: EngineDriver, as_on_cuda: EngineDriver) -> None:
    answers = []
    for driver in (on_cpu, as_on_cuda):
        first = driver.ask("story", STORY, max_tokens=24)
        history = (*driver.reply_to(STORY, first), ChatMessage("user", "And what then?"))
        answers.append((first, driver.ask("then", history, max_tokens=12)))
    for ours, theirs in zip(*answers, strict=True):
        assert ours.generated_ids == theirs.generated_ids
        assert ours.usage == theirs.usage
        our_stats, their_stats = ours.stats.engine, theirs.stats.engine
        assert our_stats is not None
        assert their_stats is not None
        for name in ("num_routed", "num_missed", "num_missed_bytes", "slot_hit_rate", "num_slots_used"):
            assert getattr(our_stats, name) == getattr(their_stats, name), name
    experts_of(as_on_cuda).check_integrity()


def test_teacher_forced_logits_keep_to_the_cpus(on_cpu: EngineDriver, as_on_cuda: EngineDriver, tmp_path: Path) -> None:
    """Weights are bf16 values in the checkpoint and activations fp32, so that only keys and values are rounded."""
    logits = []
    for name, driver in (("cpu", on_cpu), ("device", as_on_cuda)):
        path = tmp_path / f"{name}.safetensors"
        scored = driver.run(Score(name, text=TEXT, by_decode=True, logits_path=str(path)))
        assert isinstance(scored, Scored)
        logits.append(load_file(path)["logits"])
    expected, found = (rows.double().log_softmax(-1) for rows in logits)
    divergence = (expected.exp() * (expected - found)).sum(-1)
    assert divergence.mean() <= 1e-4
    same = expected.argmax(-1) == found.argmax(-1)
    best = expected.topk(2).values
    assert (best[~same, 0] - best[~same, 1] < 0.01).all()


def test_a_trace_holds_what_the_counters_say(as_on_cuda: EngineDriver, tmp_path: Path) -> None:
    path = tmp_path / "routing.trace"
    as_on_cuda.send(StartTrace("start", str(path)))
    finished = as_on_cuda.ask("traced", (ChatMessage("user", "Count from one to five."),), max_tokens=10)
    as_on_cuda.send(StopTrace("stop"))
    trace = read_trace(path)
    assert trace.num_steps == len(finished.generated_ids) - 1
    assert experts_of(as_on_cuda).routing is None
    again = as_on_cuda.ask("untraced", (ChatMessage("user", "Count from one to five."),), max_tokens=10)
    assert again.generated_ids == finished.generated_ids


def test_a_failed_load_leaves_nothing_behind() -> None:
    """Without the collector, which may come much later: the next load needs the memory."""

    def num_alive() -> int:
        return sum(type(found) in (Decoder, PagePool, PinnedStore) for found in gc.get_objects())

    def fail(event: Event) -> None:
        events.append(event)
        if isinstance(event, LoadProgressed) and event.phase == "warmup" and event.done_bytes:
            raise EngineError("no more")

    events: list[Event] = []
    gc.collect()
    gc.disable()
    try:
        before = num_alive()
        Engine(fail, Placement.on_cpu_as_on_cuda()).handle(LoadModel(OPTIONS))
        assert isinstance(events[-1], LoadFailed)
        assert num_alive() == before
    finally:
        gc.enable()


def test_a_failed_step_empties_the_slots(as_on_cuda: EngineDriver) -> None:
    as_on_cuda.ask("before", STORY, max_tokens=4)
    experts = experts_of(as_on_cuda)
    assert experts.cache.num_used > 0
    experts.clear()
    experts.check_integrity()
    assert experts.cache.num_used == 0


def test_lru_is_served_too(on_cpu: EngineDriver) -> None:
    options = EngineOptions(DEMO_FOLDER, device="cpu", num_slots=48, policy="lru")
    pairs = [EngineDriver(options).ask("lru", STORY, max_tokens=8)]
    pairs.append(EngineDriver(options, Placement.on_cpu_as_on_cuda("fp32")).ask("lru", STORY, max_tokens=8))
    assert pairs[0].generated_ids == pairs[1].generated_ids
    ours, theirs = (pair.stats.engine for pair in pairs)
    assert ours is not None
    assert theirs is not None
    assert (ours.num_routed, ours.num_missed) == (theirs.num_routed, theirs.num_missed)


@pytest.mark.long
def test_keys_and_values_on_the_host_change_no_bit(as_on_cuda: EngineDriver, tmp_path: Path) -> None:
    on_host = EngineDriver(OPTIONS, Placement.on_cpu_as_on_cuda(is_kv_on_host=True))
    model = on_host.engine._model
    assert model is not None
    assert model.forward._pages.is_kv_on_host
    ids = tuple(100 + (11 * i) % 5000 for i in range(300))
    for by_decode in (False, True):
        found = [logits_of(driver, ids, tmp_path / "x.safetensors", by_decode) for driver in (on_host, as_on_cuda)]
        assert torch.equal(*found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="--device cpu"):
        load_model(EngineOptions(DEMO_FOLDER, device="cuda"), (0, 0), lambda event: None)


def test_out_of_memory_gives_slots_back_and_keeps_the_chat(
    on_cpu: EngineDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator of a GPU is played by a chunk that fails once, in the middle of a layer."""
    driver = EngineDriver(OPTIONS, Placement.on_cpu_as_on_cuda())
    driver.ask("first", STORY, max_tokens=12)
    experts = experts_of(driver)
    num_slots, routed = experts.cache.num_slots, experts.cache.counters.num_routed
    real_run, failures = StreamedExperts.run, iter([False, False, True])

    def run(self: StreamedExperts, *arguments: Any) -> Any:
        if next(failures, False):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real_run(self, *arguments)

    monkeypatch.setattr(StreamedExperts, "run", run)
    question = (ChatMessage("user", "What is the capital of France?"),)
    found = driver.ask("second", question, max_tokens=12)
    assert found.generated_ids == on_cpu.ask("second", question, max_tokens=12).generated_ids
    assert experts.cache.num_slots < num_slots
    assert experts.cache.counters.num_routed > routed
    experts.check_integrity()
