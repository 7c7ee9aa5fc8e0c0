"""The demo's speed through the engine process on two cores, half of its experts resident: the product's promise."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    command = [sys.executable, str(REPO / "scripts" / "bench_decode.py"), "--tokens", "64"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


@pytest.mark.speed
@pytest.mark.parametrize("prompt", ["prose", "code"])
def test_decode_and_prefill_rates(figures: dict[str, Any], prompt: str) -> None:
    assert figures[prompt]["decode_tok_s"] >= 30, figures
    assert figures[prompt]["prefill_tok_s"] >= 400, figures


@pytest.mark.speed
def test_memory_and_start(figures: dict[str, Any]) -> None:
    assert figures["engine_rss_bytes"] <= 1 << 30
    assert figures["start_and_load_s"] < 8
    assert figures["prose"]["ttft_s"] < 2
