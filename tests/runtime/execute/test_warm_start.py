"""Warm start on the demo model: the experts come back, nobody waits long for them, and answers stay the same bits."""

import logging
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import runtime.execute.warm_start as warm_start
from runtime.checkpoint.files import CheckpointFiles
from runtime.checkpoint.fingerprint import fingerprint
from runtime.client import EngineClient
from runtime.execute.placement import Placement
from runtime.experts.streamed import StreamedExperts
from runtime.memory.residents import ResidentFile
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import ChatMessage, Generate, TextProduced
from scripts.bench_policy import everyday_chats
from scripts.bench_warm_start import measure
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver
from tests.support.low_memory import fix_base, limit_ram

pytestmark = pytest.mark.usefixtures("one_thread")

STORY = (ChatMessage("user", "Tell me a short story about a lighthouse."),)
KINDS = [("lru", None), ("rule", None), ("rule", Placement.on_cpu_as_on_cuda())]


def options_in(folder: Path, **changes: Any) -> EngineOptions:
    options = EngineOptions(DEMO_FOLDER, device="cpu", num_slots=96, num_threads=1, context_tokens=2048)
    return replace(options, cache_dir=folder, **changes)


def residents_of(driver: EngineDriver) -> set[tuple[int, int]]:
    assert driver.engine._model is not None
    return {(layer, expert) for layer, expert, _ in driver.engine._model.experts.cache.residents()}


def history_of(driver: EngineDriver) -> dict[str, list[int]]:
    assert driver.engine._model is not None
    return {name: values.tolist() for name, values in driver.engine._model.experts.cache.history().items()}


@pytest.mark.parametrize(("policy", "placement"), KINDS, ids=["lru", "rule", "rule as on cuda"])
def test_a_start_goes_on_where_the_last_one_ended(tmp_path: Path, placement: Placement | None, policy: str) -> None:
    options = options_in(tmp_path, policy=policy, num_slots=48)
    first = EngineDriver(options, placement)
    answer = first.ask("story", STORY, max_tokens=24)
    then = (*first.reply_to(STORY, answer), ChatMessage("user", "And what then?"))
    second = EngineDriver(options, placement)
    assert second.loaded.stats.num_slots_used == 0, "the app does not wait for it"
    second.settle()
    assert residents_of(second) == residents_of(first)
    assert history_of(second) == history_of(first)
    assert second.engine._model is not None
    second.engine._model.experts.check_integrity()
    warm, on = second.ask("then", then, max_tokens=10), first.ask("then", then, max_tokens=10)
    assert warm.generated_ids == on.generated_ids
    assert residents_of(second) == residents_of(first), "every victim since was the same"
    second.engine._model.experts.check_integrity()


def test_fewer_slots_keep_the_dearest_and_more_take_others(tmp_path: Path) -> None:
    first = EngineDriver(options_in(tmp_path))
    first.ask("story", STORY, max_tokens=24)
    fewer, more = EngineDriver(options_in(tmp_path, num_slots=40)), EngineDriver(options_in(tmp_path, num_slots=150))
    for driver in (fewer, more):
        driver.settle()
    assert residents_of(fewer) < residents_of(first) < residents_of(more)
    assert len(residents_of(fewer)) == 40
    other_policy = EngineDriver(options_in(tmp_path, policy="lru"))
    other_policy.settle()
    assert residents_of(other_policy) == residents_of(first)


def test_a_first_request_waits_for_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent the moment the model is loaded: one batch per chunk of its prompt, none between decode steps."""
    first = EngineDriver(options_in(tmp_path))
    cold = first.ask("story", STORY, max_tokens=12)
    first.ask("more", STORY, max_tokens=24)
    assert first.engine._model is not None
    slot_bytes = first.engine._model.experts.store.layouts[0].record_bytes
    monkeypatch.setattr(warm_start, "CPU_BATCH_BYTES", 7 * slot_bytes)
    batches: list[int] = []
    fill_batch = warm_start.WarmStart.fill_batch

    def counted(self: warm_start.WarmStart) -> None:
        waiting = len(self._waiting)
        fill_batch(self)
        batches.append(waiting - len(self._waiting))

    monkeypatch.setattr(warm_start.WarmStart, "fill_batch", counted)
    second = EngineDriver(options_in(tmp_path))
    second.send(Generate("story", STORY, SamplingOptions(max_tokens=12), thinking=False))
    second.step(2)
    assert batches == [7]
    second.settle()
    assert all(batch <= 7 or second.engine.is_idle for batch in batches)
    [finished] = [event for event in second.events_of("story") if hasattr(event, "generated_ids")]
    assert finished.generated_ids == cold.generated_ids


def test_a_failure_leaves_empty_slots_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    EngineDriver(options_in(tmp_path)).ask("story", STORY, max_tokens=12)
    second = EngineDriver(options_in(tmp_path))
    copy = StreamedExperts.copy
    copies = iter([False] * 5 + [True])

    def failing(self: StreamedExperts, layer: int, expert: int, slot: int, waits: bool = True) -> None:
        if next(copies, False):
            raise OSError("the disk went away")
        copy(self, layer, expert, slot, waits)

    monkeypatch.setattr(StreamedExperts, "copy", failing)
    with caplog.at_level(logging.WARNING, "hotslot.engine"):
        second.settle()
    assert [record.getMessage() for record in caplog.records] == ["warm start ends"]
    assert residents_of(second) == set()
    second.ask("story", STORY, max_tokens=4)
    assert second.engine._model is not None
    second.engine._model.experts.check_integrity()


def test_it_can_be_left_off(tmp_path: Path) -> None:
    EngineDriver(options_in(tmp_path)).ask("story", STORY, max_tokens=4)
    [kept] = (tmp_path / "residents").iterdir()
    before = kept.read_bytes()
    cold = EngineDriver(options_in(tmp_path, starts_warm=False))
    cold.settle()
    assert residents_of(cold) == set()
    cold.ask("story", STORY, max_tokens=12)
    assert kept.read_bytes() == before


def test_a_folder_that_cannot_be_written_costs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    driver = EngineDriver(options_in(tmp_path / "file"))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "hotslot.engine"):
        driver.ask("story", STORY, max_tokens=4)
    [record] = caplog.records
    assert "can't be saved" in record.getMessage()


def test_weights_that_were_trained_on_have_another_name(tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    folder.mkdir()
    for path in DEMO_FOLDER.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    name = fingerprint(CheckpointFiles.open(DEMO_FOLDER))
    assert fingerprint(CheckpointFiles.open(folder)) == name
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.seek(-100, os.SEEK_END)
        stream.write(b"trained")
    assert fingerprint(CheckpointFiles.open(folder)) != name


def test_what_a_killed_engine_had_is_kept(tmp_path: Path) -> None:
    """A turn that ended was saved by then; one that runs is saved at an interval and when the engine is told to end."""
    options = options_in(tmp_path)
    files = CheckpointFiles.open(DEMO_FOLDER)
    file = ResidentFile.of(tmp_path, fingerprint(files), 8, 48)

    def generate(name: str, num_tokens: int) -> Generate:
        return Generate(name, STORY, SamplingOptions(max_tokens=num_tokens, temperature=1.0, seed=2), thinking=False)

    with EngineClient(options) as client:
        client.load()
        list(client.generate(generate("one", 6)))
        deadline = time.monotonic() + 10
        while not file.path.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert client.process_id is not None
        os.kill(client.process_id, signal.SIGKILL)
    after_kill = file.read()
    assert after_kill is not None
    with EngineClient(options) as client:
        client.load()
        num_tokens = 0
        for event in client.generate(generate("two", 400)):
            num_tokens += isinstance(event, TextProduced)
            if num_tokens == 10:
                started_s = time.monotonic()
                client.close()
                assert time.monotonic() - started_s < 2
                break
    after_close = file.read()
    assert after_close is not None
    assert after_close.history["tok"][0] >= after_kill.history["tok"][0] + 9


def test_hit_rate_after_a_restart(tmp_path: Path) -> None:
    """At least 0.8 of that before it, and more than from empty slots; a quarter of the experts has slots."""
    figures = measure(options_in(tmp_path), everyday_chats()[0], seed=1)
    print(figures)
    assert figures.warm >= 0.8 * figures.before
    assert figures.warm > figures.cold
    assert figures.warm == figures.no_restart, "the slots serve as if there had been no restart"


def test_experts_that_lie_on_the_disk_come_back_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fix_base(monkeypatch)
    options = limit_ram(options_in(tmp_path, num_slots=48), spare_bytes=1 << 20)
    first = EngineDriver(options)
    assert first.engine._model is not None
    assert not first.engine._model.experts.store.records_stay
    answer = first.ask("story", STORY, max_tokens=12)
    second = EngineDriver(options)
    second.settle()
    assert residents_of(second) == residents_of(first)
    assert second.engine._model is not None
    second.engine._model.experts.check_integrity()
    then = (*first.reply_to(STORY, answer), ChatMessage("user", "And what then?"))
    assert second.ask("then", then, max_tokens=6).generated_ids == first.ask("then", then, max_tokens=6).generated_ids
