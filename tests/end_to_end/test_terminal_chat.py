"""The whole app in a real terminal, with the demo model and its engine process."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.store.conversations import Store
from tests.support.terminal import HOTSLOT, Terminal, engine_of, wait_until_gone

CTRL_Q = "\x11"


MakeTerminal = Callable[[dict[str, str]], Terminal]


@pytest.fixture
def make_terminal() -> Iterator[MakeTerminal]:
    opened: list[Terminal] = []

    def make(env: dict[str, str]) -> Terminal:
        opened.append(Terminal(HOTSLOT, env=env))
        return opened[-1]

    yield make
    for terminal in opened:
        terminal.close()


@pytest.fixture
def terminal(make_terminal: MakeTerminal) -> Terminal:
    return make_terminal({})


def test_message_gets_a_streamed_answer(terminal: Terminal) -> None:
    terminal.wait_for("Hotslot")
    terminal.send("Hello there, who are you?\r")
    terminal.wait_for(lambda screen: "demo" in screen.lower() and "hit" in screen.lower())
    terminal.send(CTRL_Q)
    assert terminal.wait_for_exit() == 0


def test_killed_engine_is_said_and_the_next_message_works(terminal: Terminal) -> None:
    terminal.wait_for("Hotslot")
    terminal.send("Please tell me a long story about a bear and a king.\r")
    engine = engine_of(terminal.process)
    terminal.wait_for("tok/s")
    engine.send_signal(signal.SIGKILL)
    terminal.wait_for(lambda screen: "engine" in screen.lower() and "unexpectedly" in screen.lower())
    terminal.send("Hello there!\r")
    second = engine_of(terminal.process, 30)
    assert second.pid != engine.pid
    terminal.send(CTRL_Q)
    assert terminal.wait_for_exit() == 0
    wait_until_gone(second, 2.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal_and_keeps_the_answer_so_far(
    number: signal.Signals, tmp_path: Path, make_terminal: MakeTerminal
) -> None:
    terminal = make_terminal({"HOTSLOT_HOME": str(tmp_path)})
    terminal.wait_for("slots")
    terminal.send("Please tell me a long story about a bear and a king.\r")
    engine = engine_of(terminal.process)
    terminal.wait_for("answering")
    terminal.process.send_signal(number)
    assert terminal.wait_for_exit() == 128 + number
    assert b"\x1b[?1049l" in terminal.raw
    wait_until_gone(engine, 2.0)
    store = Store.open(tmp_path / "hotslot.db")
    [conversation] = store.list_conversations()
    assert store.branch(conversation.head_id)[-1].status in ("cancelled", "complete")


def test_keys_arrive_after_a_stop_without_warning(make_terminal: MakeTerminal) -> None:
    terminal = make_terminal({})
    terminal.wait_for("slots")
    terminal.process.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait_for(lambda _: terminal.raw.count(b"\x1b[?1049h") == 2)

    def reads_keys(screen: str) -> bool:
        """Until the input thread runs again, what is typed is flushed."""
        if "§" not in screen:
            terminal.send("§")
        return "§" in screen

    terminal.wait_for(reads_keys)
    terminal.send("one two three four five")
    terminal.wait_for("one two three four five")
