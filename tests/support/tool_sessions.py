"""Chats with tools over a scripted engine, and what tests want to know of their events."""

from collections.abc import Callable
from pathlib import Path

from app.chat.events import PermissionAnswer, PermissionAsked, ToolCallEnded, TurnEvent
from app.chat.session import ChatSession
from app.engine import Engine
from app.messages import ToolStatus
from app.settings import Settings
from app.store.conversations import Store
from app.tools.permissions import Verdict
from app.tools.registry import Arguments, Scope, Tool, ToolRegistry, text_schema
from app.tools.toolbox import Permissions, ToolBox

Decide = Callable[[PermissionAsked], PermissionAnswer]


def echo_tool(name: str = "echo") -> Tool:
    """Returns its text."""

    async def run(arguments: Arguments, _: Scope) -> str:
        return str(arguments["text"])

    return Tool(text_schema(name, "Return the text.", text="The text"), "none", run)


def session_with(
    engine: Engine, *tools: Tool, otherwise: Verdict = "allow", store: Store | None = None, model: Path = Path("/m")
) -> ChatSession:
    """A session whose tools are allowed, asked about or denied; permissions are remembered where `store` is given."""
    permissions = Permissions(store.permissions if store else None, otherwise=otherwise)
    toolbox = ToolBox(ToolRegistry(*(tools or (echo_tool(),))), permissions)
    return ChatSession(engine, store or Store.in_memory(), Settings(temperature=0.0), model, toolbox=toolbox)


async def say(session: ChatSession, text: str, decide: Decide | None = None) -> list[TurnEvent]:
    """One turn; `decide` answers what is asked."""
    events: list[TurnEvent] = []
    async for event in session.send(text):
        events.append(event)
        if isinstance(event, PermissionAsked):
            assert decide is not None, "nobody was there to be asked"
            session.answer_permission(event.call_id, decide(event))
    return events


def outcomes(events: list[TurnEvent]) -> list[tuple[ToolStatus, str]]:
    """Status and text of every call that ended."""
    return [(event.status, event.text) for event in events if isinstance(event, ToolCallEnded)]
