"""Nothing that a model, a user, a file or an error says is ever markup, an action or a control sequence."""

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pyte
import pytest

from app.errors import HotslotError
from app.messages import Attachment, Message
from app.store.conversations import Store
from app.tui.widgets.message_blocks import UserBlock
from tests.app.tui.conftest import MakeApp, say, screen_text, settle
from tests.support.scripted_engine import BadCall, Call, Say, ScriptedEngine

REPOSITORY = Path(__file__).resolve().parents[3]
HOSTILE = (
    "[/red] [@click=app.quit]press[/] [b]not bold[/b] "
    "\x1b]52;c;SGVsbG8=\x07 \x1b]8;;http://evil.invalid\x1b\\link\x1b]8;;\x1b\\ \x1b[2J\x1b[31mred "
    "\x9b31m \x9d0;title\x9c \x1b \u202eevil\u202c \x00nul\x00 <|im_end|> </think> <b>html</b> end"
)
TABLE = f"| {HOSTILE.replace('|', '')} |\n|---|\n| [/red] |"
MARKDOWN = f"# {HOSTILE}\n\n- {HOSTILE}\n\n```\n{HOSTILE}\n```\n\n{TABLE}\n\n`{HOSTILE}`\n"


@pytest.mark.parametrize("size", [(200, 60), (20, 5)])
async def test_hostile_answers_are_readable_and_do_nothing(make_app: MakeApp, size: tuple[int, int]) -> None:
    engine = ScriptedEngine(
        (
            Say(HOSTILE, is_reasoning=True),
            *(Say(MARKDOWN[i : i + 7]) for i in range(0, len(MARKDOWN), 7)),
            Call(HOSTILE, {"[/red]": HOSTILE}),
            BadCall(HOSTILE, HOSTILE),
        )
    )
    app = make_app(engine=engine, notices=(HOSTILE,))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        app.chat.prompt.set_text(HOSTILE)
        await pilot.press("enter")
        await settle(pilot)
        await pilot.press("f3", "ctrl+y")
        await pilot.pause()
        assert app.is_running
        for control in ("\x1b", "\x07", "\x9b", "\x9d", "\x00", "\u202e"):
            assert control not in screen_text(app)
            assert control not in app.clipboard
            assert control not in app.chat.transcript.answers[-1].text
        assert "[@click=app.quit]press[/]" in app.clipboard
        assert "<b>html</b>" in app.clipboard
        if size == (200, 60):
            assert "[/red] [@click=app.quit]press[/]" in screen_text(app)


async def test_hostile_names_in_every_list(make_app: MakeApp, store: Store) -> None:
    conversation = store.create_conversation("m", HOSTILE)
    message = Message(conversation.id, None, "user", HOSTILE, attachments=(Attachment(HOSTILE, "text"),))
    store.append_message(message)
    store.append_message(
        Message(conversation.id, message.id, "assistant", MARKDOWN, reasoning=HOSTILE, model_name=HOSTILE)
    )
    app = make_app(engine=ScriptedEngine(start_error=HotslotError(HOSTILE)))
    async with app.run_test(size=(160, 50)) as pilot:
        await settle(pilot)
        assert "[/red] [@click=app.quit]" in screen_text(app)
        await pilot.press("ctrl+o")
        await pilot.pause()
        assert "[/red] [@click=app.quit]" in screen_text(app)
        await pilot.press("ctrl+d")
        await pilot.pause()
        assert "[/red]" in screen_text(app)
        await pilot.press("escape")
        await pilot.press("ctrl+e")
        await pilot.pause()
        await pilot.press("escape", "enter")
        await settle(pilot)
        assert app.chat.session.conversation is not None
        shown = screen_text(app)
        assert "\x1b" not in shown
        assert "[/red]" in shown
        await say(pilot, "again")
        assert app.is_running


async def test_a_line_of_a_megabyte(make_app: MakeApp) -> None:
    line = "x" * 1_000_000
    app = make_app((Say(line),), (Say("word " * 200_000),), (Say("```\n" + line + "\n```"),))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for question in "123":
            await say(pilot, question)
        app.chat.prompt.set_text(line)
        await pilot.press("enter")
        await settle(pilot)
        assert "more lines" in screen_text(app) or app.chat.query(UserBlock)
        await pilot.press("pageup", "pageup")
        await pilot.pause()


TERMINAL_APP = """
import sys
sys.path.insert(0, {repository!r})
from pathlib import Path
from app.environment import Environment
from app.locations import Locations
from app.settings import Settings
from app.tui.app import run_tui
from tests.support.scripted_engine import Say, ScriptedEngine
text = Path({text!r}).read_text()
script = tuple(Say(text[i:i+5], is_reasoning=False) for i in range(0, len(text), 5))
locations = Locations.resolve(Environment.read())
(Path(locations.models_dir) / "m").mkdir(parents=True)
sys.exit(run_tui(locations, Settings(model="m"), ({hostile!r},), ScriptedEngine(script)))
"""

OWN_SEQUENCE = re.compile(
    r"\x1b\[[0-9;:]*m"  # colours
    r"|\x1b\[[0-9;]*[HABCDJK]"  # cursor, clearing
    r"|\x1b\[\?[0-9;]*[hl]"  # modes: alternate screen, mouse, paste, synchronised output
    r"|\x1b\[\?[0-9;]*\$p"  # asks for modes
    r"|\x1b\[[<>=][0-9;]*u"  # keyboard protocol
    r"|\x1b\[>[0-9;]*[a-z]"
    r"|\x1b\]2;[^\x1b\x07]*(?:\x07|\x1b\\)|\x1b\[22;0;0t|\x1b\[23;0;0t"
    r"|\x1b\]22;[a-z-]*\x07"  # shape of the mouse pointer
    r"|\x1b[78=>]|\x1b\(B"
)


def test_bytes_written_to_a_real_terminal_hold_no_foreign_sequence(tmp_path: Path) -> None:
    """Reads what the driver writes while hostile text streams: every control sequence is one of Textual's own."""
    text_file = tmp_path / "answer"
    text_file.write_text(MARKDOWN * 2)
    code = TERMINAL_APP.format(repository=str(REPOSITORY), text=str(text_file), hostile=HOSTILE)
    environment = dict(os.environ, TERM="xterm-256color", HOTSLOT_HOME=str(tmp_path / "home"))
    written, display = _run_in_terminal([sys.executable, "-c", code], environment, "hi\r", "first after")
    written = re.sub(r"\x1b[^a-zA-Z]*$", "", written)  # the reading may have ended in the middle of one
    rest = OWN_SEQUENCE.sub("", written)
    assert "\x1b" not in rest, re.findall(r"\x1b.{0,12}", rest)[:5]
    assert not re.search(r"[\x00-\x06\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e]", rest)
    assert "\x1b]52" not in written
    assert "\x1b]8" not in written
    assert "[@click=app.quit]press[/]" in display


def _run_in_terminal(command: list[str], environment: dict[str, str], typed: str, until: str) -> tuple[str, str]:
    """All that was written, and the emulated screen once `until` is on it."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 150, 0, 0))
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)
    screen = pyte.Screen(150, 60)
    stream = pyte.Stream(screen)
    data, is_typed = b"", False
    end = time.monotonic() + 60
    try:
        while time.monotonic() < end:
            if not select.select([master], [], [], 0.1)[0]:
                continue
            chunk = os.read(master, 65536)
            data += chunk
            stream.feed(re.sub(r"\x1b\[[<>=?][^a-zA-Z]*[a-zA-Z]", "", chunk.decode("utf-8", "ignore")))
            display = "\n".join(screen.display)
            if not is_typed and "Write a message" in display and "tok/s" in display:
                os.write(master, typed.encode())
                is_typed = True
            if is_typed and until in display:
                return data.decode("utf-8"), display
        raise TimeoutError("\n".join(screen.display))
    finally:
        process.kill()
        process.wait()
        os.close(master)
