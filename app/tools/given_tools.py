"""The two built-in tools whose function another part of the app brings: searching the document, and asking aside."""

from collections.abc import Awaitable, Callable

from app.tools.registry import Arguments, RunTool, Scope, Tool, text_schema

SEARCH_DOCUMENT = text_schema("search_document", "Find passages in the attached document.", query="Words to look for")
ASK_ASIDE = text_schema(
    "ask_aside",
    "Ask a separate question beside the main chat and return the answer.",
    question="The complete question",
)
NO_PASSAGES = "No passages found."
"""What `search` returns where nothing fits; passages are `[p.3] …` or `[line 12] …`, one a line."""


def search_document_tool(search: Callable[[str], Awaitable[str]]) -> Tool:
    """`search` gets the words and returns passages with their marks, or NO_PASSAGES; raises ToolError."""
    return Tool(SEARCH_DOCUMENT, "none", _with_argument(search, "query"))


def ask_aside_tool(ask: Callable[[str], Awaitable[str]]) -> Tool:
    """`ask` gets the question and returns the answer of a fresh context; raises ToolError."""
    return Tool(ASK_ASIDE, "none", _with_argument(ask, "question"))


def _with_argument(function: Callable[[str], Awaitable[str]], name: str) -> RunTool:
    async def run(arguments: Arguments, _: Scope) -> str:
        return await function(arguments[name])

    return run
