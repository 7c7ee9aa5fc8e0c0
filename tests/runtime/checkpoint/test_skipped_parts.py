"""A model is complete without the files that hold nothing that is run."""

import json
import struct
from pathlib import Path

import pytest

from runtime.checkpoint.files import CheckpointFiles
from runtime.checkpoint.skipped_parts import skipped_files
from runtime.errors import CheckpointError

WEIGHT_MAP = {
    "model.a": "one.safetensors",
    "mtp.layers.0.x": "mtp.safetensors",
    "model.visual.blocks.0.w": "vision.safetensors",
    "model.b": "two.safetensors",
    "model.mtp.y": "two.safetensors",
}


def write_shard(folder: Path, file_name: str) -> None:
    names = [name for name, file in WEIGHT_MAP.items() if file == file_name]
    header = json.dumps(
        {name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, name in enumerate(names)}
    ).encode()
    (folder / file_name).write_bytes(struct.pack("<Q", len(header)) + header + bytes(len(names)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": WEIGHT_MAP}))
    for file_name in set(WEIGHT_MAP.values()):
        write_shard(tmp_path, file_name)
    return tmp_path


def test_only_files_without_anything_that_is_run_are_skipped() -> None:
    assert skipped_files(WEIGHT_MAP) == {"mtp.safetensors", "vision.safetensors"}


def test_skipped_files_may_be_absent(folder: Path) -> None:
    assert set(CheckpointFiles.open(folder).entries) == set(WEIGHT_MAP)
    (folder / "mtp.safetensors").unlink()
    (folder / "vision.safetensors").unlink()
    assert set(CheckpointFiles.open(folder).entries) == {"model.a", "model.b", "model.mtp.y"}


def test_others_may_not(folder: Path) -> None:
    (folder / "two.safetensors").unlink()
    with pytest.raises(CheckpointError, match="the shard is missing"):
        CheckpointFiles.open(folder)
