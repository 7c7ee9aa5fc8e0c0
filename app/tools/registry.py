"""The tools a chat offers to its model: name, schema, risk, and the function that runs one call.

A tool is a value. `run` gets arguments that fit the schema, and the `Scope` that `examine` made of them; it returns the
text the model is to read. What goes wrong is a `ToolError`, whose line the model reads after "Error: ". It runs on the
event loop and is cancelled like any task: blocking work belongs in a thread, and a cancelled tool must leave nothing
running.

How to add one, for whoever brings a function of their own:

    registry.add(search_document_tool(search))      # async def search(query: str) -> str
    registry.add(ask_aside_tool(ask))               # async def ask(question: str) -> str
    registry.remove("search_document")              # no document is attached any more

(`app/tools/given_tools.py` has both makers.) The model is offered what is in the registry when a request is made, in
the order of `ORDER`, so that the same tools always make the same prompt. A registry belongs to a `ToolBox`
(`app/tools/toolbox.py`), which `ChatSession` is given; without one no tool is offered and no call is run. What a front
end sees of a call is in `app/chat/events.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from app.errors import HotslotError
from runtime.protocol import ToolSchema

Risk = Literal["none", "read", "write", "run"]
"""none: touches nothing of the user's; such a tool still needs permission, but nothing speaks against "always"."""
Arguments = Mapping[str, Any]

ORDER = (
    "read_file",
    "list_files",
    "search_files",
    "write_file",
    "run_command",
    "calculator",
    "clock",
    "search_document",
    "ask_aside",
)
"""The built-in tools as the model is offered them; others follow by name."""


class ToolError(HotslotError):
    """Why a call has no result: one line for the model and for the user."""


@dataclass(frozen=True)
class Scope:
    """What one call touches, found before anyone is asked: shown with the permission question and remembered by it.

    `permission` is the name that is allowed or denied: the tool's own, or 'shell' for a command line that needs one.
    `folder` is the absolute folder the call touches, '' where it touches none. `diff` is the change a write makes, as a
    unified diff, else ''. `seen` is the tool's own: what it must find again when it runs. `note` is a sentence the user
    should know before deciding. `reaches_below`: the call touches what lies below the folder too.
    """

    permission: str
    folder: str = ""
    diff: str = ""
    seen: object = None
    note: str = ""
    reaches_below: bool = False


RunTool = Callable[[Arguments, Scope], Awaitable[str]]


@dataclass(frozen=True)
class Tool:
    """One tool. `schema.parameters` is a JSON schema object of plain properties.

    `examine` looks at a call and says what it touches, or refuses it with a ToolError; a tool without it touches
    nothing.
    """

    schema: ToolSchema
    risk: Risk
    run: RunTool
    examine: Callable[[Arguments], Awaitable[Scope]] | None = None

    @property
    def name(self) -> str:
        return self.schema.name

    async def look_at(self, arguments: Arguments) -> Scope:
        """What the call touches. Raises ToolError."""
        return Scope(self.name) if self.examine is None else await self.examine(arguments)


class ToolRegistry:
    """Tools by name. Refuses two of one name."""

    def __init__(self, *tools: Tool) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Offer a tool from the next request on. Raises ValueError if its name is taken."""
        if tool.name in self._tools:
            raise ValueError(f"there is a tool called {tool.name} already")
        self._tools[tool.name] = tool

    def remove(self, name: str) -> None:
        """Offer it no longer; an unknown name is fine."""
        self._tools.pop(name, None)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """In the order the model is offered them."""
        return tuple(sorted(self._tools, key=_place))

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """What the model is offered."""
        return tuple(self._tools[name].schema for name in self.names)


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


def text_schema(name: str, description: str, **parameters: str) -> ToolSchema:
    """A schema whose parameters are all required texts: name -> description."""
    properties = {key: {"type": "string", "description": words} for key, words in parameters.items()}
    return ToolSchema(name, description, {"type": "object", "properties": properties, "required": [*parameters]})
