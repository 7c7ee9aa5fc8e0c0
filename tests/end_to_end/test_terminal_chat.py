"""The whole app in a real terminal, with the demo model and its engine process."""

import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.support.terminal import HOTSLOT, Terminal, engine_of

CTRL_Q = "\x11"


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal(HOTSLOT)
    yield opened
    opened.close()


def answers_ended(screen: str, count: int) -> bool:
    """The status line no longer says that an answer is being made, and `count` messages were sent."""
    return screen.count("Hello there") >= count and "tok/s" in screen


def test_message_gets_a_streamed_answer(terminal: Terminal) -> None:
    terminal.wait_for("Hotslot", 10)
    terminal.send("Hello there, who are you?\r")
    terminal.wait_for(lambda screen: "demo" in screen.lower() and "hit" in screen.lower(), 40)
    terminal.send(CTRL_Q)
    assert terminal.wait_for_exit() == 0


def test_killed_engine_is_said_and_the_next_message_works(terminal: Terminal) -> None:
    terminal.wait_for("Hotslot", 10)
    terminal.send("Please tell me a long story about a bear and a king.\r")
    engine = engine_of(terminal.process)
    terminal.wait_for("tok/s", 40)
    engine.send_signal(signal.SIGKILL)
    terminal.wait_for(lambda screen: "engine" in screen.lower() and "unexpectedly" in screen.lower(), 10)
    terminal.send("Hello there!\r")
    second = engine_of(terminal.process, 30)
    assert second.pid != engine.pid
    terminal.send(CTRL_Q)
    assert terminal.wait_for_exit() == 0
    assert not psutil.pid_exists(second.pid)
