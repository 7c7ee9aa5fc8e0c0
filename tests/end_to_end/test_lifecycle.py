"""Processes that die: the engine under the app, the app over the engine, two apps side by side."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.terminal import HOTSLOT, REPO, engine_of, wait_until_gone

STORY = "Please tell me a long story about a little bear. " * 3


def start_ask(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*HOTSLOT, "ask", "--no-think", *arguments], cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def read_some_answer(ask: subprocess.Popen[str]) -> str:
    """Block until the first characters of the answer are there."""
    assert ask.stdout is not None
    return ask.stdout.read(1)


def test_killed_engine_is_one_readable_line() -> None:
    ask = start_ask("--min-p", "0.01", "--temperature", "3", "--max-tokens", "2000", STORY)
    read_some_answer(ask)
    engine_of(psutil.Process(ask.pid)).send_signal(signal.SIGKILL)
    _, errors = ask.communicate(timeout=20)
    assert ask.returncode == 1
    lines = [line for line in errors.splitlines() if line.strip()]
    assert "engine" in lines[-1].lower()
    assert "Traceback" not in errors


def test_killed_app_takes_its_engine_along_while_decoding() -> None:
    ask = start_ask("--min-p", "0.01", "--temperature", "3", "--max-tokens", "2000", STORY)
    read_some_answer(ask)
    engine = engine_of(psutil.Process(ask.pid))
    ask.kill()
    assert wait_until_gone(engine, 2.0) < 2.0
    ask.communicate()


def test_killed_app_takes_its_engine_along_while_prefilling(tmp_path: Path) -> None:
    document = tmp_path / "long.txt"
    document.write_text("The bear walks in the wood and sees a tree. " * 600)
    trace = start_ask("--file", str(document), "What does the bear see?")
    engine = engine_of(psutil.Process(trace.pid))
    deadline = time.monotonic() + 30
    while engine.cpu_times().user < 3.0 and time.monotonic() < deadline:
        time.sleep(0.05)
    trace.kill()
    assert wait_until_gone(engine, 2.0) < 2.0
    trace.communicate()


def test_two_instances_answer_side_by_side() -> None:
    pair = [start_ask("--json", "--temperature", "0", "--max-tokens", "8", "Hello!") for _ in range(2)]
    answers = [json.loads(ask.communicate(timeout=90)[0]) for ask in pair]
    assert [ask.returncode for ask in pair] == [0, 0]
    assert answers[0]["text"] == answers[1]["text"] != ""


def test_interrupted_ask_keeps_partial_text() -> None:
    ask = start_ask("--min-p", "0.01", "--temperature", "3", "--max-tokens", "2000", STORY)
    first = read_some_answer(ask)
    engine = engine_of(psutil.Process(ask.pid))
    ask.send_signal(signal.SIGINT)
    rest, errors = ask.communicate(timeout=20)
    assert ask.returncode == 130
    assert (first + rest).strip()
    assert "Traceback" not in errors
    wait_until_gone(engine, 2.0)


@pytest.mark.long
def test_installed_package_answers_outside_the_checkout(tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", str(site), str(REPO)]
    subprocess.run(pip, check=True, cwd=tmp_path)
    where = "import app, runtime, sys; print(app.__file__, runtime.__file__)"
    env = {**os.environ, "PYTHONPATH": str(site)}
    found = subprocess.run([sys.executable, "-c", where], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert found.stdout.count(str(site)) == 2
    ask = [sys.executable, "-m", "app", "ask", "--json", "Hello!"]
    answer = subprocess.run(ask, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["text"]
