"""Every family of screens once on a real terminal: tools, documents, side calls, versions and forks."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.terminal import Terminal

PROGRAM = """
import os, sys
from pathlib import Path
from app.locations import Locations
from app.settings import Settings
from app.tui.app import run_tui
from tests.support.scripted_engine import Call, Say, ScriptedEngine
os.chdir(sys.argv[1])
locations = Locations.resolve()
(locations.models_dir / "m").mkdir(parents=True)
engine = ScriptedEngine(*(SCRIPTS))
engine.side_scripts = [(Say("Herons"),)]
sys.exit(run_tui(locations, Settings(model="m"), (), engine))
"""

Open = Callable[[str], Terminal]


@pytest.fixture
def open_screen(tmp_path: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_terminal(scripts: str) -> Terminal:
        command = [sys.executable, "-c", PROGRAM.replace("SCRIPTS", scripts), str(tmp_path)]
        opened.append(Terminal(command, 80, 24, {"HOTSLOT_HOME": str(tmp_path / "home")}))
        opened[-1].wait_for("tok/s", 60)
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


def test_a_write_is_allowed_after_its_diff_was_seen(open_screen: Open, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("milk\n")
    write = 'Call("write_file", {"path": "notes.txt", "content": "bread\\n"})'
    terminal = open_screen(f'(({write},), (Say("Written."),))')
    terminal.send("go\r")
    screen = terminal.wait_for("Never")
    assert "-milk" in screen
    assert "+bread" in screen
    assert "Deny (N)" in screen
    terminal.read(1.0)
    terminal.send("y")
    terminal.wait_for("Written.")
    assert (tmp_path / "notes.txt").read_text() == "bread\n"
    terminal.send("\x1b[17~")
    terminal.wait_for("ask_aside")
    terminal.send("\x1b")
    terminal.wait_for(lambda screen: "ask_aside" not in screen)
    terminal.send("\x11")
    assert terminal.wait_for_exit() == 0


def test_a_document_is_pasted_asked_about_and_its_citation_opened(open_screen: Open, tmp_path: Path) -> None:
    (tmp_path / "mill.txt").write_text("The mill is old.\n\nIt has a red roof.\n")
    terminal = open_screen('((Say("A red one [line 3]."),),)')
    terminal.send(f"\x1b[200~{tmp_path}/mill.txt\x1b[201~")
    terminal.wait_for("mill.txt: read whole")
    terminal.send("Which roof?\r")
    terminal.wait_for("mill.txt, line 3")
    terminal.send("\x1bc")
    terminal.wait_for("Esc back")
    terminal.send("\x1b")
    terminal.wait_for(lambda screen: "Esc back" not in screen)
    terminal.send("\x1b[18~")
    terminal.wait_for("shown whole")
    terminal.send("\x1b")
    terminal.wait_for(lambda screen: "shown whole" not in screen)
    terminal.send("\x1b[21~")
    terminal.wait_for("Title")
    terminal.send("\x1b")
    terminal.wait_for(lambda screen: "C cancel" not in screen)
    terminal.send("\x11")
    assert terminal.wait_for_exit() == 0


def test_a_message_is_edited_and_its_versions_are_seen(open_screen: Open) -> None:
    terminal = open_screen('((Say("One."),), (Say("Two."),))')
    terminal.send("first\r")
    terminal.wait_for("first after")
    terminal.read(1.0)
    terminal.send("\x1be")
    terminal.wait_for("sends the edited message")
    terminal.send(" again\r")
    terminal.wait_for("Two.")
    terminal.send("\x1b[1;3D")
    terminal.wait_for(lambda screen: "One." in screen and "Two." not in screen)
    terminal.send("\x1bk")
    terminal.wait_for("This is a fork")
    terminal.send("\x11")
    assert terminal.wait_for_exit() == 0
