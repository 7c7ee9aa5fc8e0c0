"""The mapped store: the bytes of the pinned one, whatever the cache's size, from a record file or the checkpoint; a
record file is whole or none, of these weights or none, and takes no room that is not there."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from runtime.checkpoint.expert_source import ExpertSource
from runtime.checkpoint.facts import open_checkpoint
from runtime.checkpoint.record_place import RecordPlace, remove_record_files
from runtime.checkpoint.tensors import TensorSource
from runtime.errors import EngineError
from runtime.experts import mapped_store
from runtime.experts.checkpoint_records import CheckpointRecords
from runtime.experts.mapped_store import MappedStore, open_records
from runtime.experts.record_file import RecordFile
from runtime.experts.record_reader import RecordReader
from runtime.experts.store import PinnedStore
from runtime.record import RecordLayout
from scripts.make_checkpoint import make_checkpoint
from tests.support.checkpoint_formats import FORMATS, save_as
from tests.support.tiny_families import family_config
from tests.support.tiny_models import random_model

REPO = Path(__file__).resolve().parents[3]
MADE = [("qwen4_exp", "modelopt"), ("qwen3_5_moe", "modelopt-mixed"), ("qwen3_moe", "bf16")]


class Model:
    """A checkpoint folder and what stores are made of."""

    def __init__(self, folder: Path, cache_dir: Path) -> None:
        checkpoint = open_checkpoint(folder)
        self.folder, self.cache_dir, self.files = folder, cache_dir, checkpoint.files
        self.spec = checkpoint.spec
        self.source = ExpertSource(TensorSource(checkpoint.files), checkpoint.spec, checkpoint.names)
        self.layouts = RecordLayout.of_layers(checkpoint.spec)

    @property
    def place(self) -> RecordPlace:
        return RecordPlace.of(self.cache_dir, open_checkpoint(self.folder).files)

    def open(self, **changes: Any) -> tuple[RecordReader, str]:
        arguments = {"place": self.place, "progress": lambda done, total: None} | changes
        return open_records(
            arguments["place"], self.source, self.layouts, self.spec.moe.num_experts, arguments["progress"]
        )

    def mapped(self, reader: RecordReader, num_cached: int) -> MappedStore:
        return MappedStore(reader, self.layouts, self.spec.moe.num_experts, num_cached)

    def assert_equals_pinned(self, store: MappedStore) -> None:
        num_experts = self.spec.moe.num_experts
        pinned = PinnedStore.fill(self.source, self.layouts, num_experts)
        generator = torch.Generator().manual_seed(0)
        for layer in [*range(self.spec.num_layers), *range(self.spec.num_layers)]:
            experts = torch.randperm(num_experts, generator=generator)[:5].tolist()
            store.announce(layer, experts)
            for expert in experts:
                assert torch.equal(store.record(layer, expert), pinned.record(layer, expert))
            store.check_integrity()


@pytest.fixture
def model(tmp_path: Path) -> Model:
    make_checkpoint("qwen4_exp", "modelopt", tmp_path / "model")
    return Model(tmp_path / "model", tmp_path / "cache")


def can_read_past_the_page_cache(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def records_in(model: Model) -> list[str]:
    return sorted(path.name for path in (model.cache_dir / "records").iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("num_cached", [1, 3, 100])
@pytest.mark.parametrize(("family", "format_name"), MADE)
def test_records_are_those_of_the_pinned_store(family: str, format_name: str, num_cached: int, tmp_path: Path) -> None:
    make_checkpoint(family, format_name, tmp_path / "model")
    model = Model(tmp_path / "model", tmp_path / "cache")
    for place in (model.place, None):
        reader, notice = model.open(place=place)
        assert isinstance(reader, CheckpointRecords if place is None else RecordFile)
        assert notice == ""
        model.assert_equals_pinned(model.mapped(reader, num_cached))


@pytest.mark.parametrize("name", ["nvfp4_fused", "fp16_fused", "fp8_blocks_fused", "compressed_tensors_fused"])
def test_fused_experts_are_read_straight_from_the_checkpoint(name: str, tmp_path: Path) -> None:
    config = family_config("qwen3_5_moe", hidden_size=160, moe_intermediate_size=144)
    save_as(random_model(config, seed=4), "qwen3_5_moe", FORMATS[name], tmp_path / "model")
    model = Model(tmp_path / "model", tmp_path / "cache")
    model.assert_equals_pinned(model.mapped(model.open(place=None)[0], 3))


def test_the_file_is_made_once_and_read_past_the_page_cache(model: Model) -> None:
    reports: list[tuple[int, int]] = []
    reader, _ = model.open(progress=lambda *report: reports.append(report))
    assert reports == sorted(reports)
    assert reports[0][0] == 0
    assert reports[-1][0] == reports[-1][1]
    [name] = records_in(model)
    made = (model.cache_dir / "records" / name).stat()
    direct = can_read_past_the_page_cache(model.place.path)
    reports.clear()
    again, _ = model.open(progress=lambda *report: reports.append(report))
    kept = (model.cache_dir / "records" / name).stat()
    assert (kept.st_ino, kept.st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    assert len(reports) == 1
    assert isinstance(reader, RecordFile)
    assert isinstance(again, RecordFile)
    assert again.is_direct == direct


def test_other_weights_get_a_file_of_their_own_and_the_old_one_goes(model: Model) -> None:
    model.open()
    [before] = records_in(model)
    make_checkpoint("qwen4_exp", "modelopt", model.folder, seed=1)
    changed = Model(model.folder, model.cache_dir)
    changed.assert_equals_pinned(changed.mapped(changed.open()[0], 3))
    [after] = records_in(model)
    assert before != after
    assert remove_record_files(model.cache_dir, model.folder) > 0
    assert list((model.cache_dir / "records").iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "other header", "empty"])
def test_a_file_that_is_not_whole_is_made_again(model: Model, damage: str) -> None:
    model.open()
    path = model.place.path
    if damage == "other header":
        with path.open("r+b") as file:
            file.write(b"hotslot-records 0")
    else:
        os.truncate(path, path.stat().st_size - 4096 if damage == "cut" else 0)
    model.assert_equals_pinned(model.mapped(model.open()[0], 3))


def test_a_cancelled_writing_leaves_nothing(model: Model) -> None:
    def cancel(done_bytes: int, total_bytes: int) -> None:
        if done_bytes > total_bytes // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.open(progress=cancel)
    assert records_in(model) == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_writer_that_was_killed_is_taken_over_from(
    model: Model, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom tests.runtime.experts.test_mapped_store import Model\n"
        f"from runtime.experts import record_file\nrecord_file._KEPT_BYTES = {1 if is_kept else 1 << 30}\n"
        "def stall(done, total):\n    if 2 * done > total:\n        print('half', flush=True)\n        time.sleep(60)\n"
        "Model(Path(sys.argv[1]), Path(sys.argv[2])).open(progress=stall)\n"
    )
    command = [sys.executable, "-c", program, str(model.folder), str(model.cache_dir)]
    with subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        # Meanwhile another process reads the checkpoint itself.
        reader, notice = model.open()
        assert isinstance(reader, CheckpointRecords)
        assert "Another process is writing" in notice
        writer.kill()
    assert records_in(model) == [model.place.partial.name]
    read: list[tuple[int, int]] = []
    expert = ExpertSource.expert
    monkeypatch.setattr(ExpertSource, "expert", lambda self, *key: read.append(key) or expert(self, *key))
    reports: list[tuple[int, int]] = []
    reader, notice = model.open(progress=lambda *report: reports.append(report))
    # What was on the disk is not made again.
    num_records = model.spec.num_layers * model.spec.moe.num_experts
    assert len(read) < 0.6 * num_records if is_kept else len(read) == num_records
    assert reports[0][0] > 0.4 * reports[0][1] if is_kept else reports[0][0] == 0
    monkeypatch.undo()
    assert (records_in(model), notice) == ([model.place.path.name], "")
    model.assert_equals_pinned(model.mapped(reader, 3))


def test_without_room_on_the_disk_the_checkpoint_is_read(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(model.folder)
    monkeypatch.setattr(mapped_store.shutil, "disk_usage", lambda path: usage._replace(free=5 << 20))
    reader, notice = model.open()
    assert isinstance(reader, CheckpointRecords)
    assert "5.0 MiB" in notice
    assert "GiB free" in notice
    assert records_in(model) == []
    model.assert_equals_pinned(model.mapped(reader, 3))


def test_a_folder_that_can_not_be_written_is_no_obstacle(model: Model) -> None:
    model.cache_dir.write_text("in the way")
    reader, notice = model.open()
    assert isinstance(reader, CheckpointRecords)
    assert str(model.cache_dir) in notice
    assert "can't be made" in notice


def test_a_file_that_shrinks_while_it_is_read_is_an_error_by_name(model: Model) -> None:
    reader, _ = model.open()
    store = model.mapped(reader, 2)
    os.truncate(model.place.path, 4096)
    with pytest.raises(EngineError, match=r"\.records ends before byte"):
        store.record(1, 1)
    store.check_integrity()


def test_a_lock_that_nobody_holds_any_more_is_no_obstacle(model: Model) -> None:
    model.place.path.parent.mkdir(parents=True)
    FileLock(model.place.lock, timeout=0).acquire().lock.release()
    assert isinstance(model.open()[0], RecordFile)


def test_reads_are_in_flight_together(model: Model) -> None:
    """Announcing returns before the bytes are there, and all of them come."""
    reader, _ = model.open()
    store = model.mapped(reader, 8)
    started_s = time.monotonic()
    assert store.announce(0, list(range(8))) == 8
    assert store.announce(0, list(range(8))) == 0
    assert time.monotonic() - started_s < 1
    assert store.num_disk_bytes == 8 * 4096 * -(-model.layouts[0].record_bytes // 4096)
    assert [store.record(0, expert).numel() for expert in range(8)] == [model.layouts[0].record_bytes] * 8
