"""The model searches the documents of its chat, and is told when there is none or nothing in it."""

import pytest

from app.messages import PAGE_BREAK, Attachment
from app.tools.document_search import document_search
from app.tools.given_tools import NO_PASSAGES, search_document_tool
from app.tools.registry import Scope, ToolError

REPORT = Attachment("report.pdf", PAGE_BREAK.join(["The mill is old.", "Olga owns the boat.", "The end."]), "pages")
NOTES = Attachment("notes.txt", "First.\nOlga has a mill.\nLast.")


async def test_passages_have_their_marks() -> None:
    documents: list[Attachment] = [REPORT]
    tool = search_document_tool(document_search(lambda: documents))
    scope = Scope("search_document")
    assert await tool.run({"query": "boat"}, scope) == "[p.2] Olga owns the boat."
    assert await tool.run({"query": "ship"}, scope) == NO_PASSAGES
    documents.extend((NOTES, REPORT))
    assert await tool.run({"query": "mills"}, scope) == (
        "File report.pdf:\n[p.1] The mill is old.\nFile notes.txt:\n[line 1] First.\n[line 2] Olga has a mill.\n"
        "[line 3] Last."
    )
    assert await tool.run({"query": "boat"}, scope) == "File report.pdf:\n[p.2] Olga owns the boat."


async def test_without_a_document() -> None:
    with pytest.raises(ToolError, match="no document"):
        await document_search(lambda: ())("boat")
