"""Messages one by one on the screen: marked, edited, answered again, their versions, forks; pins, undo, files."""

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from app.messages import Message
from app.store.conversations import Store
from app.tui.app import HotslotApp
from app.tui.screens import conversations
from app.tui.screens.conversations import ConversationsScreen
from app.tui.screens.dialogs import AskTextScreen, ConfirmScreen
from app.tui.screens.text_view import TextScreen
from app.tui.widgets.message_blocks import UserBlock
from tests.app.tui.conftest import GatedEngine, MakeApp, say, screen_text, settle, until_open, until_shown
from tests.support.scripted_engine import Say, ScriptedEngine

SCRIPTS = tuple((Say(f"Answer {number}."),) for number in range(1, 7))


def said(app: HotslotApp) -> list[str]:
    return [message.content for message in app.chat.session.messages]


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settle(pilot)


async def test_an_edited_message_is_a_new_version_and_the_old_one_stays(make_app: MakeApp) -> None:
    app = make_app(*SCRIPTS)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "first")
        await say(pilot, "second")
        await press(pilot, "alt+up", "alt+up", "alt+up", "alt+up", "alt+e")
        assert app.chat.prompt.text == "first"
        assert "Enter sends the edited message" in screen_text(app)
        app.chat.prompt.set_text("other first")
        await press(pilot, "enter")
        assert said(app) == ["other first", "Answer 3."]
        assert [block.text for block in app.chat.query(UserBlock)] == ["other first"]
        await press(pilot, "alt+left")
        assert said(app) == ["first", "Answer 1.", "second", "Answer 2."]
        await until_shown(pilot, "Version 1 of 2")
        await say(pilot, "/edit #3 other second")
        assert said(app) == ["first", "Answer 1.", "other second", "Answer 4."]


async def test_editing_can_be_given_up(make_app: MakeApp) -> None:
    app = make_app(*SCRIPTS)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "first")
        await press(pilot, "alt+e", "escape")
        assert app.chat.prompt.text == ""
        await say(pilot, "second")
        assert said(app) == ["first", "Answer 1.", "second", "Answer 2."]
        await press(pilot, "alt+e", "ctrl+n")
        await say(pilot, "third")
        assert said(app) == ["third", "Answer 3."]


async def test_versions_of_an_answer_by_key_and_command(make_app: MakeApp) -> None:
    app = make_app(*SCRIPTS)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "go")
        await press(pilot, "ctrl+r")
        assert said(app) == ["go", "Answer 2."]
        await press(pilot, "alt+left")
        assert "Answer 1." in screen_text(app)
        await press(pilot, "alt+right")
        assert "Answer 2." in screen_text(app)
        await say(pilot, "/siblings 1")
        assert said(app) == ["go", "Answer 1."]
        await say(pilot, "/siblings 3")
        await until_shown(pilot, "There are 2 versions")


async def test_a_fork_ends_at_the_marked_message(make_app: MakeApp, store: Store) -> None:
    app = make_app(*SCRIPTS)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "first")
        await say(pilot, "second")
        await press(pilot, "alt+up", "alt+up", "alt+up", "alt+k")
        assert said(app) == ["first", "Answer 1."]
        assert len(store.list_conversations()) == 2
        await say(pilot, "/fork 1")
        assert said(app) == ["first"]
        assert "Ctrl+R answers the last message" in screen_text(app)
        await say(pilot, "/fork 9")
        await until_shown(pilot, "There is no message 9")
        await say(pilot, "/messages")
        await until_open(pilot, TextScreen)
        assert "1. You: first" in screen_text(app)
        await press(pilot, "escape", "ctrl+r")
        await settle(pilot)
        assert len(said(app)) == 2
        assert "Ctrl+R answers" not in screen_text(app)


async def test_a_deleted_chat_comes_back_and_pins_come_first(make_app: MakeApp, store: Store) -> None:
    app = make_app(*SCRIPTS)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "old")
        await press(pilot, "alt+p", "ctrl+n")
        await say(pilot, "new")
        assert [conversation.title for conversation in store.list_conversations()] == ["old", "new"]
        await say(pilot, "/delete")
        await until_open(pilot, ConfirmScreen)
        await press(pilot, "y")
        assert said(app) == []
        await press(pilot, "alt+u")
        assert said(app)[0] == "new"
        await say(pilot, "/chats")
        await until_open(pilot, ConversationsScreen)
        await press(pilot, "ctrl+t")
        assert all(conversation.pinned_at is None for conversation in store.list_conversations())
        await press(pilot, "ctrl+d", "Y")
        assert len(store.list_conversations()) == 1
        await press(pilot, "ctrl+z")
        assert len(store.list_conversations()) == 2


async def test_a_chat_deleted_before_the_list_or_the_app_was_opened_comes_back(make_app: MakeApp, store: Store) -> None:
    app = make_app(*SCRIPTS)
    for title in ("first", "second"):
        chat = store.create_conversation("m", title)
        store.append_message(Message(chat.id, None, "user", title))
        store.delete(chat.id)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "ctrl+o", "ctrl+z")
        assert [chat.title for chat in store.list_conversations()] == ["second"]
        await press(pilot, "escape", "alt+u")
        assert said(app)[0] == "first"
        await press(pilot, "alt+u")
        await until_shown(pilot, "There is no deleted chat to bring back.")
        app.clear_notifications()
        await press(pilot, "ctrl+o", "ctrl+z")
        await until_shown(pilot, "There is no deleted chat to bring back.")
        assert len(store.list_conversations()) == 2


async def test_a_list_that_is_not_complete_says_so(
    make_app: MakeApp, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "MOST_LISTED", 2)
    app = make_app(*SCRIPTS)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        for number in range(3):
            chat = store.create_conversation("m", f"chat {number}")
            store.append_message(Message(chat.id, None, "user", "go"))
            await press(pilot, "ctrl+o")
            assert ("Only the first 2 are listed" in screen_text(app)) == (number == 2)
            assert app.screen.query_one(OptionList).option_count == min(number + 1, 2)
            await press(pilot, "escape")


async def test_the_list_shows_where_the_words_are(make_app: MakeApp) -> None:
    app = make_app((Say("The [/red]heron stands in the water."),))
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "birds")
        await press(pilot, "ctrl+o", *"heron")
        await until_shown(pilot, "The [/red]heron stands in the water.")
        assert app.screen.query_one(OptionList).option_count == 1


async def test_chats_are_exported_and_imported(make_app: MakeApp, store: Store, tmp_path: Path) -> None:
    app = make_app(*SCRIPTS)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "go")
        await say(pilot, f"/export {tmp_path}/chat.json")
        await until_shown(pilot, "Exported to")
        assert json.loads((tmp_path / "chat.json").read_text())["title"] == "go"
        await app.chat.run_action("export_chat")
        await until_open(pilot, AskTextScreen)
        app.screen.query_one(Input).value = f"{tmp_path}/chat.md"
        await press(pilot, "enter")
        assert "Answer 1." in (tmp_path / "chat.md").read_text()
        await say(pilot, f"/import {tmp_path}/chat.json")
        assert said(app) == ["go", "Answer 1."]
        assert len(store.list_conversations()) == 2
        await say(pilot, "/import /no/such.json")
        await until_shown(pilot, "can't be read")


async def test_nothing_of_it_breaks_an_empty_chat(make_app: MakeApp) -> None:
    app = make_app(engine=ScriptedEngine())
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "alt+up", "alt+down", "alt+e", "alt+k", "alt+left", "alt+right", "alt+u", "alt+c", "alt+m")
        for command in ("/export", "/messages", "/result", "/documents"):
            await say(pilot, command)
            await press(pilot, "escape")
        assert app.is_running
        assert app.screen is app.chat


async def test_an_edited_message_waits_for_the_running_answer(make_app: MakeApp) -> None:
    engine = GatedEngine(*SCRIPTS)
    engine.load_gate.set()
    engine.end_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "first")
        engine.end_gate.clear()
        app.chat.prompt.set_text("second")
        await pilot.press("enter")
        await pilot.press("alt+e")
        app.chat.prompt.set_text("first again")
        await pilot.press("enter")
        await until_shown(pilot, "Wait for the answer")
        assert app.chat.prompt.text == "first again"
        assert app.chat.queue.texts == ()
        engine.end_gate.set()
        await settle(pilot)
