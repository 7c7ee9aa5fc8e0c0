import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.screen import Screen
from textual.widgets import Input, OptionList, Select, Switch

from app.actions import ACTIONS
from app.locations import Locations
from app.messages import Message
from app.settings import SETTING_FIELDS, Settings, ThemeName
from app.settings_file import SettingsFile
from app.store.conversations import Store
from app.tui.screens.conversations import ConversationsScreen
from app.tui.screens.help import KEYS_WIDTH, HelpTable, help_text
from app.tui.screens.settings import SettingRow, SettingsScreen
from app.tui.themes import THEME_NAMES
from app.tui.widgets import transcript
from app.tui.widgets.message_blocks import UserBlock
from tests.app.tui.conftest import GatedEngine, MakeApp, say, screen_text, settle, until_open, until_shown
from tests.support.scripted_engine import HELLO, Say, ScriptedEngine

GROUPS = list(dict.fromkeys(action.group for action in ACTIONS))


def store_chat(store: Store, title: str, *texts: str) -> str:
    conversation = store.create_conversation("model", title)
    parent: str | None = None
    for index, text in enumerate(texts):
        message = Message(conversation.id, parent, "user" if index % 2 == 0 else "assistant", text)
        store.append_message(message)
        parent = message.id
    return conversation.id


def row_of(screen: Screen[Any], name: str) -> SettingRow:
    return next(row for row in screen.query(SettingRow) if row.field.name == name)


# ---- conversations


async def test_conversations_reopen_from_the_list(make_app: MakeApp, store: Store) -> None:
    store_chat(store, "Cats", "Tell me of cats", "They **purr**.")
    store_chat(store, "Dogs", "Tell me of dogs", "They bark.")
    engine = ScriptedEngine(HELLO)
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        assert "Cats" in screen_text(app)
        await pilot.press("ctrl+o")
        await pilot.pause()
        await pilot.press(*"purr")
        await pilot.pause()
        assert app.screen.query_one(OptionList).option_count == 1
        await pilot.press("enter")
        await settle(pilot)
        assert "They purr." in screen_text(app)
        await say(pilot, "More")
        assert [message.content for message in engine.requests[-1].messages] == [
            "Tell me of cats",
            "They **purr**.",
            "More",
        ]


async def test_recent_chats_open_from_the_empty_screen(make_app: MakeApp, store: Store) -> None:
    store_chat(store, "Cats", "Tell me of cats", "They purr.")
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.click("RecentChat")
        await settle(pilot)
        assert "They purr." in screen_text(app)


async def test_a_chat_opens_while_the_engine_loads(make_app: MakeApp, store: Store) -> None:
    conversation_id = store_chat(store, "Cats", "Tell me of cats", "They purr.")
    engine = GatedEngine(HELLO)
    engine.end_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("ctrl+o")
        await until_open(pilot, ConversationsScreen)
        await pilot.press("enter")
        await until_shown(pilot, "They purr.")
        await pilot.press("q", "enter")
        engine.load_gate.set()
        await settle(pilot)
        await settle(pilot)
        assert engine.requests[-1].conversation_id == conversation_id
        assert [message.content for message in engine.requests[-1].messages] == ["Tell me of cats", "They purr.", "q"]


async def test_what_is_typed_in_one_go_is_searched_before_the_key_after_it_acts(
    make_app: MakeApp, store: Store
) -> None:
    store_chat(store, "Cats", "Tell me of cats", "They purr.")
    store_chat(store, "Dogs", "Tell me of dogs", "They bark.")
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+o")
        await until_open(pilot, ConversationsScreen)
        for key, character in (*((letter, letter) for letter in "cats"), ("enter", "\r")):
            app.post_message(events.Key(key, character))
        await until_shown(pilot, "They purr.")


async def test_renaming_and_deleting(make_app: MakeApp, store: Store) -> None:
    store_chat(store, "Old", "One", "Two")
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+o")
        await pilot.pause()
        await pilot.press("ctrl+e")
        await pilot.pause()
        app.screen.query_one(Input).value = "New [/b] name"
        await pilot.press("enter")
        await pilot.pause()
        assert store.list_conversations()[0].title == "New [/b] name"
        await pilot.press("enter")
        await settle(pilot)
        assert app.chat.session.messages
        await pilot.press("ctrl+o")
        await pilot.pause()
        await pilot.press("ctrl+d")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert store.list_conversations()
        await pilot.press("ctrl+d")
        await pilot.pause()
        await pilot.press("y")
        await pilot.pause()
        assert not store.list_conversations()
        await pilot.press("escape")
        await settle(pilot)
        assert not app.chat.session.messages
        assert "Hotslot" in screen_text(app)


async def test_a_long_chat_keeps_few_blocks_and_brings_earlier_ones_back(
    make_app: MakeApp, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "MOST_BLOCKS", 14)
    monkeypatch.setattr(transcript, "KEPT_BLOCKS", 8)
    conversation_id = store_chat(store, "Long", *(f"message {index}" for index in range(301)))
    app = make_app((Say("answer"),))
    await app.chat.session.open(conversation_id)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert len(app.chat.transcript.blocks) == 8
        assert "message 300" in screen_text(app)
        for number in range(6):
            await say(pilot, str(number))
        assert len(app.chat.transcript.blocks) <= 14
        app.chat.transcript.scroll_to(y=0, animate=False)
        await pilot.pause()
        await pilot.press("pageup")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert len(app.chat.transcript.blocks) > 8
        shown = [block.text for block in app.chat.query(UserBlock)]
        stored = [message.content for message in app.chat.session.messages if message.role == "user"]
        assert shown == stored[-len(shown) :]


# ---- settings


async def test_settings_are_generated_checked_and_saved(make_app: MakeApp, locations: Locations) -> None:
    app = make_app(settings=Settings())
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+s")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, SettingsScreen)
        assert [row.field for row in screen.query(SettingRow)] == list(SETTING_FIELDS)
        row_of(screen, "temperature").query_one(Input).value = "11"
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert app.screen is screen
        await until_shown(pilot, "from 0 to 10")
        row_of(screen, "temperature").query_one(Input).value = "0.25"
        row_of(screen, "thinking").query_one(Select).value = "off"
        row_of(screen, "overlap").query_one(Switch).value = False
        row_of(screen, "theme").query_one(Select).value = "hotslot-light"
        await pilot.press("ctrl+s")
        await settle(pilot)
        assert app.theme == "hotslot-light"
        expected = Settings(temperature=0.25, thinking="off", overlap=False, theme="hotslot-light")
        assert app.chat.session.settings == expected
        assert SettingsFile(locations.config_file).load() == (expected, None)


async def test_settings_open_with_their_first_group(make_app: MakeApp) -> None:
    """A widget takes 2 ms, and there are 200: the rest comes while the first ones are seen."""
    app = make_app()
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        app.post_message(events.Key("ctrl+s", None))
        while not (isinstance(app.screen, SettingsScreen) and app.screen.focused):
            await asyncio.sleep(0)
        assert {row.field.info.group for row in app.screen.query(SettingRow)} == {"chat"}
        await pilot.pause()
        assert [row.field for row in app.screen.query(SettingRow)] == list(SETTING_FIELDS)


async def test_another_model_from_the_settings(make_app: MakeApp, locations: Locations) -> None:
    (locations.models_dir / "other").mkdir(parents=True)
    engine = ScriptedEngine(HELLO)
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        for name, said in (("nowhere", "There is no model 'nowhere'"), ("other", "Settings saved.")):
            await pilot.press("ctrl+s")
            await until_open(pilot, SettingsScreen)
            row_of(app.screen, "model").query_one(Input).value = name
            await pilot.press("ctrl+s")
            await until_shown(pilot, said)
            await settle(pilot)
        assert app.chat.session.settings.model == "other"
        assert engine.starts[-1].model_path == locations.models_dir / "other"


async def test_settings_say_why_overlap_declines_and_what_restarts(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(120, 140)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+s")
        await pilot.pause()
        await until_shown(pilot, "Does not run now: the overlap path needs a CUDA device")
        await until_shown(pilot, "restarts the engine")
        await pilot.press("escape", "f1")
        await until_shown(pilot, "Overlap: does not run: the overlap path needs a CUDA device")


async def test_keys_switch_thinking_overlap_policy_and_theme(make_app: MakeApp, locations: Locations) -> None:
    engine = ScriptedEngine(HELLO)
    app = make_app(engine=engine, settings=Settings(vram="1GiB"))
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+t", "f4", "f5", "f8")
        await settle(pilot)
        settings = app.chat.session.settings
        assert (settings.thinking, settings.overlap, settings.policy) == ("on", False, "lru")
        assert app.theme == THEME_NAMES[1]
        assert engine.starts[-1].policy == "lru"
        assert engine.starts[-1].overlap is False
        kept, _ = SettingsFile(locations.config_file).load()
        assert kept.vram == "", "an option of this run only is not kept"
        assert kept.policy == "lru"


async def test_slash_commands_take_a_value_and_refuse_another(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for text in ("/think off", "/overlap off", "/policy lru"):
            app.chat.prompt.set_text(text)
            await pilot.press("enter")
            await settle(pilot)
        settings = app.chat.session.settings
        assert (settings.thinking, settings.overlap, settings.policy) == ("off", False, "lru")
        app.chat.prompt.set_text("/think hard about it")
        await pilot.press("enter")
        await until_shown(pilot, "/think takes auto, on or off, not 'hard about it'.")
        assert app.chat.prompt.text == "/think hard about it"
        assert app.chat.session.settings.thinking == "off"


async def test_a_settings_file_damaged_meanwhile_is_told(make_app: MakeApp, locations: Locations) -> None:
    app = make_app(settings=Settings(top_k=3))
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        locations.config_file.parent.mkdir(parents=True, exist_ok=True)
        locations.config_file.write_bytes(b"top_k = ")
        await say(pilot, "/overlap off")
        await until_shown(pilot, "The settings file was damaged; the old file is kept as")
    assert SettingsFile(locations.config_file).load()[0].top_k == 3


async def test_settings_that_cannot_be_saved_are_used_and_said(make_app: MakeApp, locations: Locations) -> None:
    locations.config_file.mkdir(parents=True)
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+t")
        await pilot.pause()
        assert app.chat.session.settings.thinking == "on"
        await until_shown(pilot, "can't be saved")


# ---- help, palette, models, sizes


async def test_help_lists_every_action(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(120, 100)) as pilot:
        await settle(pilot)
        await pilot.press("f1")
        await pilot.pause()
        lines = [line for table in app.screen.query(HelpTable) for line in table.render().plain.splitlines()]
        listed = sorted(ACTIONS, key=lambda action: GROUPS.index(action.group))
        words = " ".join(line[KEYS_WIDTH:].strip() for line in lines)
        assert words.split() == " ".join(help_text(action).plain for action in listed).split()
        assert " ".join(line[:KEYS_WIDTH] for line in lines).split() == " ".join(a.key_text for a in listed).split()
        assert len(app.screen.query("*")) < 40, "a widget takes 2 ms to open"
        await pilot.press("f1")
        await pilot.pause()
        assert app.screen is app.chat


@pytest.mark.parametrize("key", [action.keys[0] for action in ACTIONS if action.opens_screen and action.name != "cite"])
async def test_keys_after_one_that_opens_a_screen_are_that_screen_s(make_app: MakeApp, key: str) -> None:
    """As from a hand that is faster than the screen: all at once."""
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for pressed in (key, "a", "escape"):
            app.post_message(events.Key(pressed, "a" if pressed == "a" else None))
        await pilot.pause()
        await settle(pilot)
        assert app.chat.prompt.text == ""
        assert app.screen is app.chat


async def test_the_palette_runs_an_action(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"settings")
        await until_shown(pilot, "Sampling, thinking, slots, theme")
        await pilot.press("enter")
        await until_open(pilot, SettingsScreen)


async def test_models_that_cannot_be_used_say_why(make_app: MakeApp, locations: Locations) -> None:
    (locations.models_dir / "broken [b]").mkdir(parents=True)
    app = make_app()
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await pilot.press("f2")
        await pilot.pause()
        await until_shown(pilot, "broken [b]")
        await until_shown(pilot, "config.json")
        await pilot.press("escape")


@pytest.mark.parametrize(
    ("size", "theme", "keys"),
    [
        ((20, 5), "hotslot-dark", ("f1", "f2", "ctrl+s", "ctrl+o", "ctrl+p")),
        ((1, 1), "hotslot-dark", ("f1",)),
        ((80, 24), "hotslot-light", ("f1", "ctrl+o")),
        ((200, 60), "ansi-dark", ("f2", "ctrl+p")),
    ],
)
async def test_every_screen_opens_at_every_size(
    make_app: MakeApp, store: Store, size: tuple[int, int], theme: ThemeName, keys: tuple[str, ...]
) -> None:
    store_chat(store, "Old", "One", "Two")
    app = make_app(
        (Say("# A\n\n- b\n\n| c | d |\n|---|---|\n| 1 | 2 |\n\n```py\nx\n```\n"),), settings=Settings(theme=theme)
    )
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await say(pilot, "Hi there")
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
            await pilot.press("escape")
            await pilot.pause()
        assert app.screen is app.chat
        await pilot.resize_terminal(30, 8)
        await pilot.pause()
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert "Hi there" in screen_text(app)


async def test_no_color(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await say(pilot, "Hi")
        assert "Hello there." in screen_text(app)
