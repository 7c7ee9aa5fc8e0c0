"""The app over a scripted engine and a store of its own; tests press keys and wait for turns, never for time."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from app.chat.session import ChatSession
from app.engine import ProgressCallback
from app.locations import Locations
from app.settings import Settings
from app.store.conversations import Store
from app.tui.app import HotslotApp
from runtime.options import EngineOptions
from runtime.protocol import Finished, Generate, Loaded, RequestEvent
from tests.support.scripted_engine import ScriptedEngine, Step

MakeApp = Callable[..., HotslotApp]


@pytest.fixture
def make_app(locations: Locations, store: Store, tmp_path: Path) -> MakeApp:
    """Builds an app that plays the given scripts, or uses the given engine."""

    def make(
        *scripts: tuple[Step, ...],
        engine: ScriptedEngine | None = None,
        settings: Settings | None = None,
        notices: tuple[str, ...] = (),
        names_chats: bool = False,
        kept_in: Store | None = None,
    ) -> HotslotApp:
        kept_in = kept_in or store
        engine = engine or ScriptedEngine(*scripts)
        settings = settings or Settings(tools=False)
        session = ChatSession(engine, kept_in, settings, tmp_path / "model", names_chats)
        return HotslotApp(session, kept_in, locations, notices)

    return make


class GatedEngine(ScriptedEngine):
    """Loads when `load_gate` opens; ends each answer when `end_gate` opens."""

    def __init__(self, *scripts: tuple[Step, ...]) -> None:
        super().__init__(*scripts)
        self.load_gate = asyncio.Event()
        self.end_gate = asyncio.Event()

    async def start(self, options: EngineOptions, on_progress: ProgressCallback | None = None) -> Loaded:
        await self.load_gate.wait()
        return await super().start(options, on_progress)

    async def generate(self, request: Generate) -> AsyncGenerator[RequestEvent, None]:
        async for event in super().generate(request):
            if isinstance(event, Finished):
                await self.end_gate.wait()
            yield event


HANDS = 10
"""A message passes from the terminal to the app, a screen, a widget and up through its parents: one hand a round."""


@pytest.fixture(autouse=True)
def patient_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key is obeyed before the next is pressed.

    Textual's own pilot waits until this process computes little, and so it does while other processes have the cores.
    """
    press, pause = Pilot.press, Pilot.pause

    async def press_one_by_one(self: Pilot[None], *keys: str) -> None:
        for key in keys:
            await press(self, key)
            await obeyed(self)

    async def pause_until_obeyed(self: Pilot[None], delay: float | None = None) -> None:
        await pause(self, delay)
        if delay is None:
            await obeyed(self)

    monkeypatch.setattr(Pilot, "press", press_one_by_one)
    monkeypatch.setattr(Pilot, "pause", pause_until_obeyed)


async def obeyed(pilot: Pilot[None]) -> None:
    """Wait until what was sent so far is obeyed and drawn, except what threads and workers do about it."""
    for _ in range(HANDS):
        await pilot.pause(0)


async def settle(pilot: Pilot[None]) -> None:
    """Wait until nothing runs and everything is drawn."""
    app = pilot.app
    assert isinstance(app, HotslotApp)
    for _ in range(6000):
        await pilot.pause()
        if not app.chat.is_busy:
            return
        await pilot.pause(0.01)
    raise AssertionError(f"still busy:\n{screen_text(app)}")


async def say(pilot: Pilot[None], text: str) -> None:
    """Put a message into the prompt and send it."""
    assert isinstance(pilot.app, HotslotApp)
    pilot.app.chat.prompt.focus()
    pilot.app.chat.prompt.set_text(text)
    await pilot.press("enter")
    await settle(pilot)


def screen_text(app: HotslotApp) -> str:
    """Everything on the screen, row by row."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def until_shown(pilot: Pilot[None], text: str) -> None:
    """Wait until the screen, or a notification, has this text; line breaks don't count."""
    app = pilot.app
    assert isinstance(app, HotslotApp)
    for _ in range(3000):
        words = " ".join(screen_text(app).split()) + " ".join(note.message for note in app._notifications)
        if " ".join(text.split()) in words:
            return
        await pilot.pause(0.01)
    raise AssertionError(f"{text!r} is not on the screen:\n{screen_text(app)}")


async def until_open(pilot: Pilot[None], screen: type[Screen[Any]]) -> None:
    """Wait until this kind of screen is on top."""
    for _ in range(1000):
        if isinstance(pilot.app.screen, screen):
            break
        await pilot.pause(0.01)
    assert isinstance(pilot.app.screen, screen), f"{screen.__name__} did not open over {pilot.app.screen}"
    await pilot.pause()
