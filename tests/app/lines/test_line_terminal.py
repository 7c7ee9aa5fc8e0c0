"""`hotslot chat` on a real terminal and as a process: Ctrl+C, what is typed during an answer, the end of the input."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import REPO
from tests.support.terminal import Terminal

PROGRAM = """
import sys
from app.cli import main
from app.commands import chat
from tests.support.scripted_engine import Call, Hang, Say, ScriptedEngine
SLOW = (Say("word "), Hang())
chat.LocalEngine = lambda *_: ScriptedEngine(SCRIPTS)
sys.exit(main(["chat", "--model", sys.argv[1]]))
"""

Open = Callable[..., Terminal]


@pytest.fixture
def open_chat(tmp_path: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_terminal(scripts: str, **env: str) -> Terminal:
        command = [sys.executable, "-c", PROGRAM.replace("SCRIPTS", scripts), str(tmp_path)]
        opened.append(Terminal(command, env={"HOTSLOT_HOME": str(tmp_path / "home"), **env}))
        opened[-1].wait_for("> ")
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


def test_a_chat_without_drawing(open_chat: Open) -> None:
    terminal = open_chat('(Say("Let me think.", is_reasoning=True), Say("Hello there."))', NO_COLOR="1", TERM="dumb")
    terminal.send("hi\r")
    terminal.wait_for("Hello there.")
    terminal.send("\x04")
    assert terminal.wait_for_exit() == 0
    assert b"\x1b" not in terminal.raw
    assert not set("─│╭╮╰╯█▌⠋") & set(terminal.raw.decode())


def test_ctrl_c_stops_the_answer_and_twice_leaves(open_chat: Open) -> None:
    terminal = open_chat('SLOW, SLOW, (Say("Well."),)')
    terminal.send("go\r")
    terminal.wait_for("word")
    terminal.send("\x03")
    terminal.wait_for("Stopped; what was said is kept.")
    terminal.send("again\r")
    terminal.wait_for(lambda screen: screen.count("word") == 2)
    terminal.send("\x03")
    terminal.wait_for(lambda screen: screen.count("Stopped") == 2)
    terminal.send("\x03")
    assert terminal.wait_for_exit() == 130


def test_ctrl_c_at_the_prompt_warns_first(open_chat: Open) -> None:
    terminal = open_chat("SLOW")
    terminal.send("half a li\x03")
    terminal.wait_for("Ctrl+C again leaves")
    terminal.send("\x03")
    assert terminal.wait_for_exit() == 130


def test_commands_work_and_messages_wait_while_an_answer_runs(open_chat: Open) -> None:
    terminal = open_chat('SLOW, (Say("The second."),)')
    terminal.send("go\r")
    terminal.wait_for("word")
    terminal.send("/settings\r")
    terminal.wait_for("temperature = automatic")
    terminal.send("next question\r")
    terminal.wait_for("Waits for the answer: next question")
    terminal.send("/stop\r")
    terminal.wait_for("The second.")
    terminal.send("/quit\r")
    assert terminal.wait_for_exit() == 0


def test_an_interrupted_script_stops_and_then_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.replace("SCRIPTS", "SLOW"), str(tmp_path)]
    env = {**os.environ, "HOTSLOT_HOME": str(tmp_path / "home")}
    pipe = subprocess.PIPE
    chat = subprocess.Popen(command, cwd=REPO, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write(b"go\ngo on\n" * 2)
    chat.stdin.flush()
    assert chat.stdout.read(5) == b"word "
    chat.send_signal(signal.SIGINT)
    assert chat.stdout.read(6) == b"\nword "
    chat.send_signal(signal.SIGINT)
    chat.communicate(timeout=20)
    assert chat.returncode == 130


CALL = '(Call("calculator", {"expression": "23*19"}),), (Say("Well."),)'


@pytest.mark.parametrize(("typed", "status"), [("y", "done: 437"), ("n", "denied"), ("sure", "denied")])
def test_the_question_before_a_call_is_answered_by_a_line(open_chat: Open, typed: str, status: str) -> None:
    terminal = open_chat(CALL)
    terminal.send("go\r")
    terminal.wait_for("Allow it? y (once), n, always, never")
    assert 'expression: "23*19"' in terminal.screen
    terminal.send(f"{typed}\r")
    terminal.wait_for(f"calculator {status}")
    terminal.wait_for("Well.")
    terminal.send("\x04")
    assert terminal.wait_for_exit() == 0


def test_ctrl_c_at_the_question_stops_the_answer(open_chat: Open) -> None:
    terminal = open_chat(CALL)
    terminal.send("go\r")
    terminal.wait_for("Allow it?")
    terminal.send("\x03")
    terminal.wait_for("Stopped; what was said is kept.")
    terminal.send("/quit\r")
    assert terminal.wait_for_exit() == 0
