"""Decode with less memory than experts, measured as the README's figures are: the same logits in every bit, bytes that
the kernel confirms, and a process that stays below what it was given."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.locations import DEMO_MODEL, asset_path
from runtime.client import child_environment
from runtime.memory.budget import RAM_MARGIN_BYTES
from runtime.memory.process_base import measure_process_base
from runtime.options import EngineOptions
from scripts.make_checkpoint import make_checkpoint
from tests.support.disk_reads import counts_disk_reads
from tests.support.low_memory import least_ram

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="disk bytes and the peak are Linux's own counts")
REPO = Path(__file__).resolve().parents[2]
MIB = 1 << 20


def bench(script: str, folder: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(REPO / "scripts" / script), str(folder), *arguments]
    environment = child_environment() | {"PYTHONPATH": str(REPO)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    figures: dict[str, Any] = json.loads(run.stdout)
    return figures


def assert_holds(figures: dict[str, Any], folder: Path) -> None:
    assert figures["logits_equal"]
    assert figures["peak_bytes"] <= figures["ram_bytes"] < figures["peak_bytes_all_in_memory"] + RAM_MARGIN_BYTES
    assert figures["cached_records"] < figures["experts"]
    assert figures["disk_bytes_per_token"] > 0 or not counts_disk_reads(folder)
    assert figures["disk_bytes_verified"] or not counts_disk_reads(folder)
    shares = figures["slot_hit_rate"] + figures["ram_hit_rate"] + figures["disk_share"]
    assert shares == pytest.approx(1)
    assert figures["slot_hit_rate"] == figures["slot_hit_rate_all_in_memory"]


@pytest.mark.long
def test_the_demo_model(tmp_path: Path) -> None:
    options = EngineOptions(asset_path(DEMO_MODEL), device="cpu", num_slots=40, context_tokens=256)
    ram_bytes = least_ram(options, *measure_process_base(child_environment())) + 10 * MIB
    arguments = ("--ram", str(ram_bytes), "--slots", "40", "--tokens", "16", "--rounds", "1")
    figures = bench("bench_mapped.py", asset_path(DEMO_MODEL), *arguments, "--cache", str(tmp_path))
    assert_holds(figures, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_checkpoint_larger_than_the_memory_it_may_have(tmp_path: Path) -> None:
    """Qwen3-Next's own width, four layers: 8.5 GB of files, 5.5 GiB to run in."""
    folder = tmp_path / "model"
    make_checkpoint("qwen3_next", "modelopt", folder, size="geometry", num_layers=4)
    arguments = ("--ram", "5.5GiB", "--slots", "400", "--tokens", "8", "--rounds", "5")
    figures = bench("bench_mapped.py", folder, *arguments, "--cache", str(tmp_path / "cache"))
    assert figures["ram_bytes"] < sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert_holds(figures, tmp_path)
    # On the clock, against the same tokens from memory and the disk's own rate, each measured just before the next.
    assert figures["is_within_bound"], figures
    assert figures["cpu_ms_per_token"] <= 1.3 * figures["cpu_ms_per_token_all_in_memory"], figures
