"""Tools on the screen: the question before a call, its card, the rules, and whole results."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, OptionList

from app.settings import Settings
from app.store.conversations import Store
from app.tui.app import HotslotApp
from app.tui.screens import permission
from app.tui.screens.permission import PermissionScreen
from app.tui.screens.text_view import TextScreen
from app.tui.screens.tools import ToolsScreen
from app.tui.widgets.answer_block import AnswerBlock
from app.tui.widgets.tool_card import ToolCard
from tests.app.tui.conftest import MakeApp, say, screen_text, settle, until_open, until_shown
from tests.support.scripted_engine import BadCall, Call, Hang, Say, ScriptedEngine

SUM = (Say("Let me see."), Call("calculator", {"expression": "23*19"}))
DONE = (Say("It is 437."),)


@pytest.fixture(autouse=True)
def armed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission, "ARMING_S", 0.0)


async def ask(pilot: Pilot[None], text: str = "What is 23*19?") -> None:
    assert isinstance(pilot.app, HotslotApp)
    pilot.app.chat.prompt.set_text(text)
    await pilot.press("enter")
    await until_open(pilot, PermissionScreen)


def results(app: HotslotApp) -> list[tuple[str, str]]:
    return [(message.tool_status, message.content) for message in app.chat.session.messages if message.role == "tool"]


@pytest.mark.parametrize(
    ("key", "status", "num_rules"),
    [
        ("y", "done", 0),
        ("Y", "done", 0),
        ("a", "done", 1),
        ("n", "denied", 0),
        ("N", "denied", 0),
        ("escape", "denied", 0),
        ("enter", "denied", 0),
    ],
)
async def test_the_user_decides(make_app: MakeApp, store: Store, key: str, status: str, num_rules: int) -> None:
    app = make_app(SUM, DONE, settings=Settings())
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await ask(pilot)
        assert 'expression: "23*19"' in screen_text(app)
        await pilot.press(key)
        await settle(pilot)
        assert [found for found, _ in results(app)] == [status]
        assert len(store.permissions.all()) == num_rules
        shown = screen_text(app)
        assert shown.index("Let me see.") < shown.index("calculator") < shown.index("It is 437.")
        assert app.chat.query_one(ToolCard).state == status


async def test_a_letter_typed_for_the_prompt_allows_nothing(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission, "ARMING_S", 60.0)
    app = make_app(SUM, DONE, settings=Settings())
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await ask(pilot)
        await pilot.press(*"yay", "enter", "y")
        assert isinstance(app.screen, PermissionScreen)
        await pilot.press("escape")
        await settle(pilot)
        assert [status for status, _ in results(app)] == ["denied"]


async def test_a_letter_counts_once_nobody_types(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(permission, "ARMING_S", 2.0)
    # A clock of the test's own: a slow machine takes longer than this between two keys.
    monkeypatch.setattr(permission, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    app = make_app(SUM, DONE, settings=Settings())
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await ask(pilot)
        await pilot.press("x", "y")
        assert isinstance(app.screen, PermissionScreen)
        now_s[0] += 2.2
        await pilot.press("y")
        await settle(pilot)
        assert [status for status, _ in results(app)] == ["done"]


async def test_a_write_shows_its_diff_and_is_remembered_for_its_folder(
    make_app: MakeApp, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    write = Call("write_file", {"path": f"{tmp_path}/notes.txt", "content": "one\n[/red]three\n"})
    app = make_app((write,), (write,), DONE, settings=Settings(tool_folders=str(tmp_path)))
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await ask(pilot, "write")
        shown = screen_text(app)
        assert "-two" in shown
        assert "+[/red]three" in shown
        assert str(tmp_path) in shown
        await pilot.click("#folder")
        await settle(pilot)
        assert [status for status, _ in results(app)] == ["done", "done"]
        assert (tmp_path / "notes.txt").read_text() == "one\n[/red]three\n"
        assert [(rule.permission, rule.folder) for rule in store.permissions.all()] == [("write_file", str(tmp_path))]


async def test_a_question_goes_away_with_its_turn(make_app: MakeApp) -> None:
    app = make_app(SUM, DONE, settings=Settings())
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await ask(pilot)
        await app.chat.session.cancel()
        await settle(pilot)
        assert app.screen is app.chat
        assert [status for status, _ in results(app)] == ["cancelled"]


async def test_cards_fold_and_whole_results_open(make_app: MakeApp, tmp_path: Path, store: Store) -> None:
    (tmp_path / "long.txt").write_text("".join(f"line {number}\n" for number in range(60)))
    read = Call("read_file", {"path": "long.txt"})
    app = make_app((read,), DONE, settings=Settings(tool_folders=str(tmp_path)))
    async with app.run_test(size=(100, 60)) as pilot:
        await settle(pilot)
        await ask(pilot, "read")
        await pilot.press("y")
        await settle(pilot)
        await pilot.click("CardTitle")
        await pilot.pause()
        assert "open all of it" in screen_text(app)
        assert "line 50" not in screen_text(app)
        await pilot.press("tab", "enter")
        await until_open(pilot, TextScreen)
        assert "line 40" in screen_text(app)
        await pilot.press("escape")
        app.chat.prompt.focus()
        await say(pilot, "/result")
        await until_open(pilot, TextScreen)


async def test_stored_turns_are_one_block_with_their_cards(make_app: MakeApp, store: Store) -> None:
    app = make_app((*SUM, BadCall("<tool_call>[/red]")), DONE, settings=Settings())
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await ask(pilot)
        await pilot.press("y")
        await settle(pilot)
        assert app.chat.session.conversation is not None
        conversation_id = app.chat.session.conversation.id
    again = make_app(DONE)
    await again.chat.session.open(conversation_id)
    async with again.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        assert len(again.chat.query(AnswerBlock)) == 1
        assert [card.state for card in again.chat.query(ToolCard)] == ["done", "rejected"]
        shown = screen_text(again)
        assert "437" in shown
        assert "earlier messages" not in shown
        assert "<tool_call>[/red]" in shown


async def test_rules_are_listed_made_and_revoked(make_app: MakeApp, store: Store, tmp_path: Path) -> None:
    folder = "/srv/notes"  # short enough for one line of the screen
    store.permissions.remember("read_file", folder, "allow")
    app = make_app(DONE, settings=Settings())
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await pilot.press("f6")
        await until_open(pilot, ToolsScreen)
        assert f"always allowed {folder}" in screen_text(app)
        assert screen_text(app).count("asks, unless a rule below decides") == 1
        await pilot.press("down", "r")
        await pilot.pause()
        assert store.permissions.all() == []
        await pilot.press("home", "d")
        await until_shown(pilot, "always denied everywhere")
        await pilot.press("escape")
        await say(pilot, f"/allow write_file {tmp_path}")
        await say(pilot, "/revoke read_file")
        await say(pilot, "/deny nothing")
        await until_shown(pilot, "There is no tool 'nothing'")
        assert [(rule.permission, rule.decision) for rule in store.permissions.all()] == [("write_file", "allow")]


async def test_tools_can_be_switched_off(make_app: MakeApp, tmp_path: Path) -> None:
    engine = ScriptedEngine(DONE)
    app = make_app(engine=engine, settings=Settings(tool_folders=str(tmp_path)))
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await say(pilot, "hi")
        assert "calculator" in [tool.name for tool in engine.requests[-1].tools]
        assert "search_document" not in [tool.name for tool in engine.requests[-1].tools]
        (tmp_path / "a.txt").write_text("inside")
        await app.chat.action_attach(str(tmp_path / "a.txt"))
        await say(pilot, "read it")
        assert "search_document" in [tool.name for tool in engine.requests[-1].tools]
        await say(pilot, "/set tools off")
        await say(pilot, "hi")
        assert engine.requests[-1].tools == ()
        await say(pilot, f"/set tool_folders {tmp_path}/gone")
        await say(pilot, "/set tools on")
        await until_shown(pilot, "No tools are offered")
        await pilot.press("f6")
        await until_open(pilot, ToolsScreen)
        assert app.screen.query_one(OptionList).option_count == 0


async def test_stopping_while_a_tool_is_asked_about(make_app: MakeApp) -> None:
    app = make_app((*SUM, Hang()), DONE, settings=Settings())
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        app.chat.prompt.set_text("go")
        await pilot.press("enter")
        while not app.chat.query(ToolCard):
            await pilot.pause(0.01)
        await pilot.press("escape")
        await settle(pilot)
        assert app.screen is app.chat
        assert not app.screen.query(Button)
