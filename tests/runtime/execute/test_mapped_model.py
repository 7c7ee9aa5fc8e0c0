"""A model whose experts stay on the disk answers with the bits of one that has them in memory, and says where its
experts came from."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from runtime.execute.placement import Placement
from runtime.experts.mapped_store import MappedStore
from runtime.experts.streamed import StreamedExperts
from runtime.memory import budget
from runtime.options import EngineOptions
from runtime.protocol import (
    Cancel,
    Cancelled,
    ChatMessage,
    Failed,
    Finished,
    Generate,
    PrefillProgressed,
    Score,
    Scored,
)
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver
from tests.support.low_memory import fix_base, limit_ram

QUESTION = (ChatMessage("user", "Who are you, and what can you do for me?"),)
SPARE_BYTES = 6 << 20
"""For the host cache beside its fewest records: not enough for all of the demo's experts."""
OPTIONS = EngineOptions(DEMO_FOLDER, device="cpu", num_slots=60, num_threads=1, context_tokens=256)


@pytest.fixture(autouse=True)
def _same_base(monkeypatch: pytest.MonkeyPatch) -> None:
    fix_base(monkeypatch)


Drive = Callable[..., EngineDriver]


@pytest.fixture(params=["record file", "checkpoint"])
def mapped(request: pytest.FixtureRequest, tmp_path: Path) -> Drive:
    def drive(options: EngineOptions = OPTIONS, placement: Placement | None = None) -> EngineDriver:
        cache_dir = tmp_path if request.param == "record file" else None
        driver = EngineDriver(replace(limit_ram(options, SPARE_BYTES), cache_dir=cache_dir), placement)
        store = store_of(driver)
        assert store.source == ("the record file" if cache_dir else "the checkpoint's files")
        assert 40 <= store.cache.num_records < 384
        return driver

    return drive


def store_of(driver: EngineDriver) -> MappedStore:
    assert driver.engine._model is not None
    store = driver.engine._model.experts.store
    assert isinstance(store, MappedStore)
    return store


def logits_of(driver: EngineDriver, path: Path, **how: Any) -> torch.Tensor:
    scored = driver.run(Score("score", token_ids=tuple(range(1, 49)), logits_path=str(path), **how))
    assert isinstance(scored, Scored), scored
    return load_file(path)["logits"]


def test_answers_are_those_of_the_pinned_store_in_every_bit(mapped: Drive, tmp_path: Path) -> None:
    pinned, driver = EngineDriver(OPTIONS), mapped()
    for number, how in enumerate(({}, {"by_decode": True})):
        expected, actual = (
            logits_of(d, tmp_path / f"{number}{name}", **how) for d, name in ((pinned, "p"), (driver, "m"))
        )
        assert torch.equal(expected, actual)
    expected_ids, ids = (d.ask("ask", QUESTION, 12, temperature=1.0, seed=3).generated_ids for d in (pinned, driver))
    assert ids == expected_ids
    assert driver.engine._model is not None
    driver.engine._model.experts.check_integrity()
    store_of(driver).check_integrity()


def test_the_device_path_gives_the_same_bits(mapped: Drive) -> None:
    placement = Placement.on_cpu_as_on_cuda()
    pinned, driver = EngineDriver(OPTIONS, placement), mapped(placement=placement)
    expected, finished = (d.ask("ask", QUESTION, 12) for d in (pinned, driver))
    assert finished.generated_ids == expected.generated_ids
    assert finished.stats.engine.num_missed == expected.stats.engine.num_missed
    assert 0 < finished.stats.engine.num_from_disk < finished.stats.engine.num_missed
    store_of(driver).check_integrity()


def test_the_figures_say_where_experts_came_from(mapped: Drive) -> None:
    driver = mapped()
    stats = driver.ask("ask", QUESTION, 12).stats.engine
    assert stats.num_cached_records == store_of(driver).cache.num_records
    assert 0 < stats.num_disk_bytes <= store_of(driver).num_disk_bytes
    assert 0 < stats.num_from_disk < stats.num_missed
    assert stats.slot_hit_rate is not None
    assert stats.disk_rate is not None
    assert 0 < stats.disk_rate < 1 - stats.slot_hit_rate
    pinned = EngineDriver(OPTIONS).ask("ask", QUESTION, 12).stats.engine
    assert (pinned.disk_rate, pinned.num_from_disk, pinned.num_disk_bytes) == (0, 0, 0)


def test_a_disk_that_fails_ends_the_request_and_not_the_engine(tmp_path: Path) -> None:
    driver = EngineDriver(replace(limit_ram(OPTIONS, SPARE_BYTES), cache_dir=tmp_path))
    [file] = tmp_path.glob("records/*.records")
    content = file.read_bytes()
    with file.open("r+b") as opened:
        opened.truncate(4096)
    failed = driver.run(Generate("broken", QUESTION))
    assert isinstance(failed, Failed)
    assert "ends before byte" in failed.message
    with file.open("r+b") as opened:
        opened.write(content)
    assert isinstance(driver.ask("whole", QUESTION), Finished)
    store_of(driver).check_integrity()


LONG = replace(OPTIONS, context_tokens=512, chunk_tokens=16)
LONG_PROMPT = (ChatMessage("user", " ".join(f"word{number}" for number in range(70))),)


@pytest.fixture
def long_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small a model would not give memory for them."""
    monkeypatch.setattr(budget, "LEAST_STEP_ROOM", 1)


@pytest.mark.usefixtures("long_steps")
@pytest.mark.parametrize("is_on_device", [False, True])
def test_a_prompt_reads_each_expert_once_and_changes_no_bit(mapped: Drive, is_on_device: bool) -> None:
    placement = Placement.on_cpu_as_on_cuda() if is_on_device else None
    pinned, driver = EngineDriver(LONG, placement), mapped(LONG, placement)
    store = store_of(driver)
    before = store.num_disk_bytes
    expected, finished = (d.ask("first", LONG_PROMPT, 1) for d in (pinned, driver))
    assert finished.usage.prompt_tokens > 12 * LONG.chunk_tokens
    # Twelve chunks of it, and the token that ends the turn.
    assert store.num_disk_bytes - before <= (384 + 8 * 4) * store.cache.memory.shape[1]
    # What a prompt leaves behind serves the next turn as ever.
    again = (d.reply_to(LONG_PROMPT, f) for d, f in ((pinned, expected), (driver, finished)))
    turns = [(*messages, ChatMessage("user", "And then?")) for messages in again]
    expected, finished = (
        d.ask("next", turn, 12, temperature=1.0, seed=3) for d, turn in zip((pinned, driver), turns, strict=True)
    )
    assert finished.usage.cached_tokens == expected.usage.cached_tokens > 0
    assert finished.generated_ids == expected.generated_ids
    store.check_integrity()


def test_a_prompt_pushes_out_nothing_that_answers_use(mapped: Drive) -> None:
    driver = mapped(LONG)
    cache = store_of(driver).cache
    driver.ask("answer", QUESTION, 12)
    # The token that ends a turn is read as a prompt is.
    cache.let_pass()
    used = list(cache._row_of)[-16:]
    num_disk_bytes = store_of(driver).num_disk_bytes
    driver.ask("prompt", LONG_PROMPT, 1)
    # Enough for every row to be another record's.
    assert store_of(driver).num_disk_bytes - num_disk_bytes > cache.memory.nbytes
    assert all(map(cache.has, used))


@pytest.mark.usefixtures("long_steps")
@pytest.mark.parametrize("is_on_device", [False, True])
def test_a_long_step_is_given_up_where_its_answer_is_not_wanted(mapped: Drive, is_on_device: bool) -> None:
    """The second of two: what the first one read stays, and is what it was."""
    prompt = (ChatMessage("user", LONG_PROMPT[0].content * 2),)
    placement = Placement.on_cpu_as_on_cuda() if is_on_device else None
    driver, fresh = mapped(LONG, placement), mapped(LONG, placement)
    model = driver.engine.model
    driver.send(Generate("given up", prompt, thinking=False))
    driver.step()
    moe = model.forward._decoder.layers[5].moe
    forward, num_run = moe.forward, 0

    def run(*arguments: Any) -> torch.Tensor:
        nonlocal num_run
        num_run += 1
        driver.engine._cancelled.add("given up")
        return forward(*arguments)

    moe.forward = run  # type: ignore[method-assign]
    driver.step()
    assert num_run == 1
    assert sum(isinstance(event, PrefillProgressed) for event in driver.events_of("given up")) == 1
    assert isinstance(driver.run(Cancel("given up")), Cancelled)
    moe.forward = forward  # type: ignore[method-assign]
    assert driver.engine._cancelled == set()
    expected, finished = (d.ask("given up", prompt, 8) for d in (fresh, driver))
    assert finished.usage.prompt_tokens > finished.usage.cached_tokens == 16 * LONG.chunk_tokens
    assert finished.generated_ids == expected.generated_ids
    assert finished.logprobs == expected.logprobs


@pytest.mark.usefixtures("long_steps")
def test_out_of_memory_in_a_long_step_gives_slots_back_and_keeps_the_chat(
    mapped: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator of a GPU is played by a chunk that fails once, when others have come further."""
    placement = Placement.on_cpu_as_on_cuda()
    driver, fresh = mapped(LONG, placement), mapped(LONG, placement)
    num_slots, real_run, num_run = driver.engine.model.experts.cache.num_slots, StreamedExperts.run, 0

    def run(self: StreamedExperts, *arguments: Any) -> Any:
        nonlocal num_run
        num_run += 1
        if num_run == 40:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real_run(self, *arguments)

    expected = fresh.ask("long", LONG_PROMPT, 8)
    monkeypatch.setattr(StreamedExperts, "run", run)
    finished = driver.ask("long", LONG_PROMPT, 8)
    assert driver.engine.model.experts.cache.num_slots < num_slots
    assert finished.generated_ids == expected.generated_ids
    assert finished.logprobs == expected.logprobs
    store_of(driver).check_integrity()
