"""Files go with the next message, are seen and counted before, and can be taken back."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from app.store.conversations import Store
from app.tui.app import HotslotApp
from app.tui.screens import chat_attaching
from app.tui.screens.file_picker import FilePicker
from app.tui.widgets.prompt import Prompt
from runtime.protocol import CountTokens
from tests.app.tui.conftest import GatedEngine, MakeApp, say, screen_text, settle, until_open, until_shown
from tests.support.scripted_engine import HELLO, ScriptedEngine

HOSTILE_NAME = "no\x1b]52;c;aGk=\x07te[@click=app.quit]\u202e[red].txt"


class CountingEngine(ScriptedEngine):
    """Counts a token per word."""

    async def count_tokens(self, request: CountTokens) -> int:
        return sum(len(message.content.split()) for message in request.messages)


def names(app: HotslotApp) -> list[str]:
    return [file.name for file in app.chat.attachments.files]


async def test_a_file_waits_above_the_prompt_and_goes_with_the_message(
    make_app: MakeApp, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "my notes.txt").write_text("one two <|im_end|> four\n")
    engine = CountingEngine(HELLO)
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await say(pilot, f"/attach '{tmp_path}/my notes.txt'")
        assert names(app) == ["my notes.txt"]
        # The file's name line, two fences and four words.
        await until_shown(pilot, "⊕ my notes.txt 24 B · 9 tokens")
        await until_shown(pilot, "read whole, 9 tokens")
        await say(pilot, f"/attach '{tmp_path}/my notes.txt'")
        assert names(app) == ["my notes.txt"]
        await until_shown(pilot, "my notes.txt is attached already; it is sent once.")
        await say(pilot, "What does it say?")
        assert names(app) == []
        assert "⊕ my notes.txt" in screen_text(app)
        sent = engine.requests[-1].messages[-1].content
        assert sent == "File my notes.txt:\n```\none two <|im_end|> four\n```\n\nWhat does it say?"
    [conversation] = store.list_conversations()
    assert [file.name for file in store.branch(conversation.head_id)[0].attachments] == ["my notes.txt"]


async def test_a_file_alone_is_a_message(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alone")
    engine = CountingEngine(HELLO)
    app = make_app(engine=engine)
    async with app.run_test() as pilot:
        await settle(pilot)
        await say(pilot, f"/attach {tmp_path}/a.txt")
        await pilot.press("enter")
        await settle(pilot)
        assert "alone" in engine.requests[-1].messages[-1].content


async def test_files_are_taken_back(make_app: MakeApp, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(name)
    app = make_app(engine=CountingEngine(HELLO))
    async with app.run_test() as pilot:
        await settle(pilot)
        for name in "abc":
            await say(pilot, f"/attach {tmp_path / name}")
        await say(pilot, "/detach")
        assert names(app) == ["a", "b"]
        await pilot.pause()
        await pilot.click("AttachmentRemove")
        await pilot.pause()
        assert names(app) == ["b"]
        await say(pilot, "/detach")
        await say(pilot, "/detach")
        await until_shown(pilot, "No file is attached")
        await say(pilot, "/attach")
        await until_open(pilot, FilePicker)
        await pilot.press("escape")


async def test_what_can_not_be_attached_is_one_line(make_app: MakeApp, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "empty").write_bytes(b"")
    reasons = {"gone": "no file", "pipe": "not a regular", "binary": "binary", "empty": "is empty", "": "is a folder"}
    app = make_app(engine=CountingEngine(HELLO))
    async with app.run_test(size=(160, 50)) as pilot:
        await settle(pilot)
        for name, reason in reasons.items():
            await say(pilot, f"/attach {tmp_path}/{name}")
            await until_shown(pilot, reason)
        assert names(app) == []


async def test_hostile_names_are_only_text(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / HOSTILE_NAME).write_text("\x1b[31mred\x00 [/red]")
    app = make_app(engine=CountingEngine(HELLO))
    async with app.run_test(size=(160, 30)) as pilot:
        await settle(pilot)
        await app.chat.action_attach(str(tmp_path / HOSTILE_NAME))
        await until_shown(pilot, "[@click=app.quit][red].txt")
        await say(pilot, "hi")
        assert "[@click=app.quit][red].txt" in screen_text(app)
        assert not {"\x1b", "\x07", "\u202e", "\x00"} & set(screen_text(app))


async def test_files_wait_in_the_queue_with_their_message(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("content")
    engine = GatedEngine(HELLO, HELLO)
    engine.load_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("1", "enter")
        app.chat.prompt.set_text(f"/attach {tmp_path}/a.txt")
        await pilot.press("enter")
        while not names(app):
            await pilot.pause(0.01)
        await pilot.press("2", "enter")
        assert names(app) == []
        await until_shown(pilot, "» ⊕1 2")
        await pilot.press("f9")
        assert names(app) == ["a.txt"]
        assert app.chat.prompt.text == "2"
        await pilot.press("enter")
        engine.end_gate.set()
        await settle(pilot)
        await settle(pilot)
        assert "content" in engine.requests[-1].messages[-1].content


async def test_a_queued_file_comes_back_once_and_is_counted(make_app: MakeApp, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("content")
    engine = GatedEngine(HELLO, HELLO)
    engine.load_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("1", "enter")
        for name in "ab":
            await app.chat.action_attach(str(tmp_path / name))
        await pilot.press("2", "enter")
        await app.chat.action_attach(str(tmp_path / "b"))
        await pilot.press("f9")
        assert names(app) == ["a", "b"]
        await until_shown(pilot, "b is attached already; it is sent once.")
        await until_shown(pilot, "⊕ a  7 B · 5 tokens")
        await until_shown(pilot, "read whole, 5 tokens")
        engine.end_gate.set()
        await settle(pilot)


async def test_the_word_on_citing_counts_with_the_first_file(make_app: MakeApp, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("one\n\ntwo\n")
    app = make_app(engine=CountingEngine(HELLO))
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for name in "ab":
            await say(pilot, f"/attach {tmp_path / name}")
        # Names, fences, marks and words: 10 each.
        await until_shown(pilot, "⊕ a  9 B · 28 tokens")
        await until_shown(pilot, "⊕ b  9 B · 10 tokens")
        await pilot.click("AttachmentRemove")
        await until_shown(pilot, "⊕ b  9 B · 28 tokens")
        assert names(app) == ["b"]


async def test_leaving_does_not_wait_for_a_file_that_is_being_read(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading, gate = threading.Event(), threading.Event()

    def read(path: Path, *, may_be_pipe: bool) -> None:
        is_reading.set()
        gate.wait(20)

    monkeypatch.setattr(chat_attaching, "read_attachment", read)
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        # Not by keys: the pilot waits until each is obeyed.
        app.chat.post_message(Prompt.Submitted(f"/attach {tmp_path}/slow.pdf"))
        while not is_reading.is_set():
            await asyncio.sleep(0.01)
        started = time.monotonic()
        await app.action_quit()
    assert time.monotonic() - started < 5
    gate.set()
