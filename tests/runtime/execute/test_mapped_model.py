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
from runtime.options import EngineOptions
from runtime.protocol import ChatMessage, Failed, Finished, Generate, Score, Scored
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
