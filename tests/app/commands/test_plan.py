"""`plan` says what the other commands say about a checkpoint: on stderr, and as a field of the JSON object."""

import json
import sys
from pathlib import Path

import psutil
import pytest

from app.cli import main
from app.locations import asset_path
from runtime.client import EngineClient
from runtime.options import EngineOptions
from runtime.protocol import Score
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


@pytest.mark.parametrize(
    ("vram", "ram", "fits", "is_mapped"),
    [("16GiB", "128GiB", True, False), ("16GiB", "32GiB", True, True), ("4GiB", "32GiB", False, True)],
)
def test_model_of_the_catalogue_is_planned_without_its_weights(
    vram: str, ram: str, fits: bool, is_mapped: bool
) -> None:
    planned = run_hotslot("plan", "qwen3.8-flash-next", "--device", "cuda", "--vram", vram, "--ram", ram, "--json")
    report = json.loads(planned.out)
    assert (planned.status, report["fits"], report["is_store_mapped"]) == (0 if fits else 1, fits, is_mapped)
    assert "planned from its published shapes" in report["notice"]
    assert "planned from its published shapes" in planned.err


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from Linux")
def test_the_plan_of_a_cpu_is_what_an_engine_then_takes_at_most() -> None:
    plan = json.loads(run_hotslot("plan", "demo", "--device", "cpu", "--json").out)
    client = EngineClient(EngineOptions(asset_path("demo-model"), device="cpu"))
    try:
        client.start()
        client.load()
        client.score(Score("600", token_ids=(7,) * 600))
        [engine] = psutil.Process().children()
        status = Path(f"/proc/{engine.pid}/status").read_text()
    finally:
        client.close()
    peak_kib = int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])
    assert 1024 * peak_kib == pytest.approx(plan["total_bytes"], rel=0.05)


def test_dense_weights_and_keys_can_be_placed_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    def planned(*options: str) -> dict[str, int]:
        main(["plan", "demo", "--device", "cpu", "--json", *options])
        found: dict[str, int] = json.loads(capsys.readouterr().out)
        return found

    assert planned("--dense", "fp8")["dense_bytes"] < 0.7 * planned("--dense", "bf16")["dense_bytes"]
    assert planned("--kv", "host")["kv_bytes"] == planned()["kv_bytes"], "a CPU has one memory"


def test_a_device_can_be_chosen_anew() -> None:
    """As the settings can: `auto` where they say another."""
    assert json.loads(run_hotslot("plan", "demo", "--device", "auto", "--json").out)["device"] in ("cpu", "cuda")
