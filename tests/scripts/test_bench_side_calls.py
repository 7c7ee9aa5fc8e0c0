"""The bench of side calls: what it counts, and that it runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench_side_calls import Answer, figures, overlaps

REPO = Path(__file__).resolve().parents[2]


def answer(sent_s: float, pieces: list[float]) -> Answer:
    return Answer(sent_s, pieces, pieces[-1], len(pieces))


def test_time_in_which_all_decode() -> None:
    assert overlaps([[(0, 4), (6, 9)], [(1, 7)], [(2, 3), (3.5, 20)]]) == [(2, 3), (3.5, 4), (6, 7)]


def test_ratios_are_to_the_chat_alone() -> None:
    alone = [[answer(0, [0.1 * number for number in range(1, 101)])]] * 2
    beside = [answer(100, [100 + 0.2 * number for number in range(1, 51)])]
    result = figures(alone, beside, [[answer(100, [102.0, 104.1]), answer(105, [108.0, 108.0])]])
    assert result["chat_alone_tok_s"] == 10.0
    assert result["ratio"] == 0.5
    assert result["ratio_while_all_decode"] == pytest.approx(0.5, abs=0.03)
    assert result["worst_gap_ms"] == 200
    assert (result["side_calls_ended"], result["side_call_latency_s_worst"]) == (2, 4.1)


@pytest.mark.long
def test_it_runs() -> None:
    script = str(REPO / "scripts" / "bench_side_calls.py")
    command = [sys.executable, script, "--seconds", "2", "--prompt-tokens", "30", "--answer-tokens", "2"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["side_calls_ended"] >= 3
    assert result["ratio"] > 0
    assert 0 < result["side_call_share_of_step_time"] < 1
