"""`plan` says what the other commands say about a checkpoint: on stderr, and as a field of the JSON object."""

import json
from pathlib import Path

import pytest

from scripts.make_checkpoint import make_checkpoint
from tests.support.command_line import run_hotslot


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """NVFP4 experts in a folder that claims FP8."""
    folder = tmp_path / "model"
    make_checkpoint("qwen3_moe", "modelopt", folder)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    return folder


def test_a_format_that_the_config_denies_is_said_once(model: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text("[1, 2, 3]")
    scored = run_hotslot("score", "--model", str(model), "--ids", str(tmp_path / "ids.json"), "--vram", "64MiB")
    [said] = scored.err.splitlines()
    assert "says fp8, but the experts are nvfp4" in said
    table, as_json = (run_hotslot("plan", str(model), "--vram", "64MiB", *flags) for flags in ([], ["--json"]))
    for planned in (table, as_json):
        assert (planned.status, planned.err) == (0, scored.err)
    assert said == f"hotslot: {json.loads(as_json.out)['notice']}"


def test_no_notice_where_config_and_tensors_agree(model: Path) -> None:
    make_checkpoint("qwen3_moe", "modelopt", model)
    planned = run_hotslot("plan", str(model), "--vram", "64MiB", "--json")
    assert (planned.err, json.loads(planned.out)["notice"]) == ("", None)
