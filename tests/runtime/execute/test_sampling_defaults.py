"""A checkpoint's recommended sampling is read as it is, or refused by name."""

import json
from pathlib import Path

import pytest

from runtime.errors import CheckpointError
from runtime.execute.sampling_defaults import read_sampling_defaults
from runtime.options import SamplingOptions


def read(folder: Path, config: dict[str, object]) -> SamplingOptions:
    (folder / "generation_config.json").write_text(json.dumps(config))
    return read_sampling_defaults(folder)


def test_recommended_values(tmp_path: Path) -> None:
    config = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "eos_token_id": [1, 2]}
    assert read(tmp_path, dict(config)) == SamplingOptions(temperature=0.7, top_k=20, top_p=0.8)


def test_greedy_without_sampling_or_file(tmp_path: Path) -> None:
    assert read_sampling_defaults(tmp_path) == SamplingOptions()
    assert read(tmp_path, {"temperature": 0.7}) == SamplingOptions()


@pytest.mark.parametrize(
    "name_value", [("temperature", "hot"), ("top_p", 3), ("top_k", 1.5), ("temperature", float("nan"))]
)
def test_a_value_it_cannot_be_is_named(tmp_path: Path, name_value: tuple[str, object]) -> None:
    name, value = name_value
    with pytest.raises(CheckpointError, match=name.replace("_", ".")):
        read(tmp_path, {"do_sample": True, name: value})
