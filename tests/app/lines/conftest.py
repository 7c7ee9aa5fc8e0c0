"""The line-oriented chat in this process: a script in, both streams out, a scripted engine behind it."""

import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.chat.session import ChatSession
from app.chat.toolset import ToolSet
from app.console import Console
from app.lines.line_base import LineState
from app.lines.line_chat import LineChat
from app.lines.line_input import LineInput
from app.locations import Locations
from app.settings import Settings
from app.store.conversations import Store
from tests.support.scripted_engine import ScriptedEngine, Step


@dataclass(frozen=True)
class Said:
    """What a run printed, and how it ended."""

    out: str
    err: str
    status: int
    engine: ScriptedEngine
    session: ChatSession


RunLines = Callable[..., Awaitable[Said]]


@pytest.fixture
def run_lines(locations: Locations, store: Store, tmp_path: Path) -> RunLines:
    """Runs lines through a chat; each answer is the next script."""

    async def run(
        *lines: str,
        scripts: tuple[tuple[Step, ...], ...] = (),
        settings: Settings | None = None,
        engine: ScriptedEngine | None = None,
    ) -> Said:
        out, err = io.StringIO(), io.StringIO()
        console = Console(out=out, err=err)
        engine = engine or ScriptedEngine(*scripts)
        session = ChatSession(engine, store, settings or Settings(tools=False), tmp_path / "model")
        typed = LineInput(console.notice, io.BytesIO("".join(f"{line}\n" for line in lines).encode()))
        toolset = ToolSet(session, store)
        toolset.apply(session.settings)
        chat = LineChat(LineState(session, store, locations, console, typed, toolset))
        chat.check_integrity()
        status = await chat.run()
        return Said(out.getvalue(), err.getvalue(), status, engine, session)

    return run
