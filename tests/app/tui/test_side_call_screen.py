"""Side calls on the screen: listed with state, tokens and latency, cancelled, counted in the status bar."""

import asyncio

from app.tui.screens.side_calls import SideCallsScreen
from runtime.protocol import ChatMessage
from tests.app.tui.conftest import MakeApp, say, screen_text, settle, until_open, until_shown
from tests.support.scripted_engine import HELLO, Hang, Say, ScriptedEngine

ASKED = (ChatMessage("user", "Sum it up"),)


async def test_side_calls_are_listed_and_cancelled(make_app: MakeApp) -> None:
    engine = ScriptedEngine(HELLO)
    engine.side_scripts = [(Say("Short."),), (Say("x"), Hang())]
    app = make_app(engine=engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await say(pilot, "hi")
        side_calls = app.chat.session.side_calls
        assert await side_calls.ask("summary", "a long [/red] result", ASKED, 20) == "Short."
        running = asyncio.create_task(side_calls.ask("aside", "a question", ASKED, 20))
        await until_shown(pilot, "beside 1")
        await pilot.press("f10")
        await until_open(pilot, SideCallsScreen)
        await until_shown(pilot, "a long [/red] result")
        shown = screen_text(app)
        assert shown.index("a question") < shown.index("a long [/red] result")
        assert "done · 7 tokens in, 1 out" in shown
        await pilot.press("c")
        await until_shown(pilot, "cancelled")
        await asyncio.gather(running, return_exceptions=True)
        side_calls.check_integrity()
        await pilot.press("escape")
        assert "beside" not in screen_text(app)
        await say(pilot, "/side cancel 9")
        await until_shown(pilot, "There is no side call 9")
        await say(pilot, "/side cancel")
