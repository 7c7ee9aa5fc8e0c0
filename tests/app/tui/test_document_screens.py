"""Documents on the screen: picked, pasted, planned before sending, listed; citations open their passage."""

from pathlib import Path

from textual import events
from textual.widgets import Input
from textual.widgets._toast import Toast

from app.tui.app import HotslotApp
from app.tui.screens.documents import DocumentsScreen
from app.tui.screens.file_picker import FilePicker
from app.tui.screens.text_view import TextScreen
from app.tui.widgets.citations import CitationLine
from tests.app.tui.conftest import MakeApp, say, screen_text, settle, until_open, until_shown
from tests.support.scripted_engine import HELLO, Say, ScriptedEngine

TEXT = "".join(f"Paragraph {number} speaks of [/red] herons.\n\n" for number in range(1, 80))


def names(app: HotslotApp) -> list[str]:
    return [file.name for file in app.chat.attachments.files]


async def until_attached(app: HotslotApp, pilot: object) -> None:
    for _ in range(3000):
        if names(app):
            return
        await pilot.pause(0.01)  # type: ignore[attr-defined]
    raise AssertionError("nothing was attached")


async def test_a_pasted_path_is_attached_and_other_pastes_are_text(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("inside")
    app = make_app(HELLO)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        app.chat.prompt.post_message(events.Paste(f"'{tmp_path}/a b.txt'"))
        await until_attached(app, pilot)
        assert names(app) == ["a b.txt"]
        app.chat.prompt.post_message(events.Paste("/no/such/file"))
        await pilot.pause()
        assert app.chat.prompt.text == "/no/such/file"


async def test_the_picker_attaches_a_path(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text(TEXT)
    app = make_app(HELLO)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await app.chat.run_action("attach")
        await until_open(pilot, FilePicker)
        app.screen.query_one(Input).focus()
        app.screen.query_one(Input).value = str(tmp_path / "report.txt")
        await pilot.press("enter")
        await until_attached(app, pilot)
        await until_shown(pilot, "report.txt: read whole")


async def test_the_plan_follows_the_chosen_way(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text(TEXT)
    engine = ScriptedEngine(HELLO, context_limit_tokens=400)
    app = make_app(engine=engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        app.chat.prompt.set_text("herons of paragraph 7")
        await app.chat.action_attach(str(tmp_path / "report.txt"))
        await until_shown(pilot, "report.txt: passages")
        app.chat.action_reading("whole")
        await until_shown(pilot, "there is room for")
        app.chat.prompt.set_text("")
        await say(pilot, "/reading sideways")
        await until_shown(pilot, "Documents are read auto, whole, passages, all")


async def test_an_edited_message_is_read_in_the_chosen_way(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text(TEXT)
    engine = ScriptedEngine(HELLO, HELLO, context_limit_tokens=6000)
    app = make_app(engine=engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await app.chat.action_attach(str(tmp_path / "report.txt"))
        await say(pilot, "herons of paragraph 7")
        app.chat.action_reading("passages")
        await say(pilot, "/edit #1 herons of paragraph 9")
        read = [message.attachments[0].reading for message in app.chat.session.messages if message.attachments]
        assert [reading and reading.mode for reading in read] == ["passages"]


async def test_the_plan_follows_the_words_that_are_typed(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text(TEXT)
    app = make_app(engine=ScriptedEngine(HELLO, context_limit_tokens=400))
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await app.chat.action_attach(str(tmp_path / "report.txt"))
        await until_shown(pilot, "report.txt: all of it, in pieces")
        await until_shown(pilot, "asks for all of it: 1 piece).")
        await pilot.press(*"paragraph")
        await until_shown(pilot, "report.txt: passages")
        assert "all of it, in pieces" not in screen_text(app)


async def test_what_is_said_in_passing_leaves_the_prompt_in_sight(make_app: MakeApp) -> None:
    app = make_app(HELLO)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settle(pilot)
        await say(pilot, "/attach /no/such/file")
        for _ in range(500):
            if toasts := app.screen.query(Toast):
                break
            await pilot.pause(0.01)
        assert toasts
        await pilot.pause()
        for toast in toasts:
            assert 0 < toast.region.bottom <= app.chat.prompt.region.y


async def test_documents_are_listed_and_citations_open(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text(TEXT)
    app = make_app((Say("Herons are in [line 61] and [line 5], not in [line 9999]."),))
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await app.chat.action_attach(str(tmp_path / "report.txt"))
        await say(pilot, "Where?")
        assert len(app.chat.query(CitationLine)) == 2
        await pilot.click(CitationLine)
        await until_open(pilot, TextScreen)
        await until_shown(pilot, "Paragraph 31 speaks of [/red] herons.")
        await pilot.press("escape")
        await say(pilot, "/cite 2")
        await until_open(pilot, TextScreen)
        assert "Paragraph 3 speaks" in screen_text(app)
        await pilot.press("escape")
        await say(pilot, "/cite 3")
        await until_shown(pilot, "has 2 of them")
        await pilot.press("f7")
        await until_open(pilot, DocumentsScreen)
        assert "shown whole" in screen_text(app)
        await pilot.press("enter")
        await until_open(pilot, TextScreen)
        await until_shown(pilot, "Paragraph 1 speaks")
