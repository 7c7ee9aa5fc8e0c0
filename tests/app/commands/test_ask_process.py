"""`ask` as a process of its own over a scripted engine: Ctrl-C and a pipe whose reader leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.support.command_line import REPO

PROGRAM = """
import sys
from contextlib import aclosing
from app.cli import main
from app.commands import ask
from runtime.protocol import TextProduced
from tests.support.scripted_engine import Call, Hang, Say, ScriptedEngine
script = (*(Say("word ", pause_s=0.002),) * 50, *ENDING)
class TellingEngine(ScriptedEngine):
    async def start(self, options, on_progress=None):
        (options.model_path / "is-loading").touch()
        return await super().start(options, on_progress)
    async def generate(self, request):
        num_words = 0
        async with aclosing(super().generate(request)) as events:
            async for event in events:
                yield event
                num_words += isinstance(event, TextProduced)
                if num_words == 50:
                    (self.starts[-1].model_path / "is-said").touch()
ask.LocalEngine = lambda *_: TellingEngine(script, load_s=LOAD_S)
sys.exit(main(["ask", "--model", sys.argv[1], *sys.argv[2:]]))
"""


def start(
    model: Path, *arguments: str, ending: str = "(Hang(),)", load_s: float = 0.0, stdin: int | IO[bytes] | None = None
) -> subprocess.Popen[str]:
    code = PROGRAM.replace("ENDING", ending).replace("LOAD_S", str(load_s))
    command = [sys.executable, "-c", code, str(model), *arguments]
    return subprocess.Popen(command, cwd=REPO, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_file(ask: subprocess.Popen[str], path: Path) -> None:
    deadline_s = time.monotonic() + 60
    while not path.exists():
        assert ask.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_interrupt_keeps_the_partial_answer(tmp_path: Path) -> None:
    ask = start(tmp_path, "go")
    assert ask.stdout is not None
    first = ask.stdout.read(5)
    ask.send_signal(signal.SIGINT)
    rest, errors = ask.communicate(timeout=20)
    assert ask.returncode == 130
    assert (first + rest).startswith("word word ") or first + rest == "word \n"
    assert errors == ""


def test_interrupted_json_says_cancelled(tmp_path: Path) -> None:
    ask = start(tmp_path, "--json", "go", load_s=0.3)
    wait_for_file(ask, tmp_path / "is-said")
    ask.send_signal(signal.SIGINT)
    out, errors = ask.communicate(timeout=20)
    assert (ask.returncode, errors) == (130, "")
    answer = json.loads(out)
    assert answer["finish_reason"] == "cancelled"
    assert answer["text"] == "word " * 50


def is_sleep(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "sleep" in process.cmdline()
    return False


def test_interrupt_while_a_command_runs(tmp_path: Path) -> None:
    """It ends with all it has started, and the turn is cancelled."""
    line = "sh -c 'sleep 600 & touch started; sleep 600'"
    ending = f"(Call('run_command', {{'command': {line!r}}}),)"
    ask = start(tmp_path, "--allow", "run_command", "--allow", "shell", "--root", str(tmp_path), "go", ending=ending)
    wait_for_file(ask, tmp_path / "started")
    # The file may be there before either of them is.
    running: list[psutil.Process] = []
    deadline_s = time.monotonic() + 60
    while sum(map(is_sleep, running)) < 2:
        assert time.monotonic() < deadline_s, running
        time.sleep(0.02)
        running = psutil.Process(ask.pid).children(recursive=True)
    ask.send_signal(signal.SIGINT)
    _, errors = ask.communicate(timeout=20)
    assert ask.returncode == 130
    assert "tool cancelled: run_command" in errors
    assert not [process for process in running if process.is_running()]


def test_interrupt_while_loading(tmp_path: Path) -> None:
    ask = start(tmp_path, "go", load_s=60)
    wait_for_file(ask, tmp_path / "is-loading")
    ask.send_signal(signal.SIGINT)
    out, errors = ask.communicate(timeout=20)
    assert (ask.returncode, out, errors) == (130, "", "")


def test_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    ask = start(tmp_path, "go", ending='(Say("more ", pause_s=0.002),) * 5000')
    assert ask.stdout is not None
    assert ask.stdout.read(5) == "word "
    ask.stdout.close()
    assert ask.stderr is not None
    errors = ask.stderr.read()
    assert (ask.wait(20), errors) == (141, "")


def test_a_prompt_without_end_is_refused(tmp_path: Path) -> None:
    with open("/dev/zero", "rb") as endless:
        ask = start(tmp_path, "-", stdin=endless)
        out, errors = ask.communicate(timeout=20)
    assert (ask.returncode, out) == (1, "")
    assert errors == "hotslot: stdin is larger than 16 MiB; attach the part that matters.\n"


@pytest.mark.parametrize(("arguments", "name"), [(("-",), "stdin"), (("--file", "pipe", "go"), "pipe")])
def test_what_is_waited_for_is_said(tmp_path: Path, arguments: tuple[str, ...], name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    given = [str(tmp_path / "pipe") if argument == "pipe" else argument for argument in arguments]
    ask = start(tmp_path, *given, ending="()", stdin=subprocess.PIPE)
    assert ask.stderr is not None
    said = ask.stderr.readline()  # The test's own time limit ends a wait without a word.
    assert said.startswith("hotslot: still reading ")
    assert said.endswith(f"{name}; Ctrl+C stops.\n")
    ask.send_signal(signal.SIGINT)
    assert ask.wait(20) == 130
