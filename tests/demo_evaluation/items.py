"""The hand-written evaluation items of the demo model, read from the files beside this one.

None of these texts may be used for training: they say how well the model does on what it has never seen.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runtime.protocol import ToolCall, ToolSchema

FOLDER = Path(__file__).parent
Layout = Literal["question_first", "document_first"]


@dataclass(frozen=True)
class DocumentItem:
    """A question that one sentence of the document answers."""

    id: str
    layout: Layout
    document: str
    question: str
    sentence: str
    """Verbatim, as it stands in the document."""
    answer: str | None
    """Part of the sentence that a right answer must contain; None where no short one exists."""

    @property
    def prompt(self) -> str:
        return _prompt(self.layout, self.question, self.document)


@dataclass(frozen=True)
class MissingItem:
    """A question near the document's topic that the document does not answer."""

    id: str
    layout: Layout
    document: str
    question: str
    absent: tuple[str, ...]
    """Beginnings of words, in lower case, one of which an answer in the document would need."""

    @property
    def prompt(self) -> str:
        return _prompt(self.layout, self.question, self.document)


@dataclass(frozen=True)
class ToolItem:
    """A request, the tools offered with it, and every accepted list of calls; the empty list means: just answer."""

    id: str
    request: str
    tools: tuple[str, ...]
    calls: tuple[tuple[ToolCall, ...], ...]


def documents() -> list[DocumentItem]:
    return [DocumentItem(**row) for row in _rows("documents.jsonl")]


def missing() -> list[MissingItem]:
    return [MissingItem(**{**row, "absent": tuple(row["absent"])}) for row in _rows("missing.jsonl")]


def tool_requests() -> list[ToolItem]:
    return [
        ToolItem(row["id"], row["request"], tuple(row["tools"]), tuple(map(_calls, row["calls"])))
        for row in _rows("tools.jsonl")
    ]


def tool_schemas() -> dict[str, ToolSchema]:
    """The app's built-in tools by name."""
    functions = [entry["function"] for entry in json.loads((FOLDER / "tools.json").read_text("utf-8"))]
    return {
        function["name"]: ToolSchema(function["name"], function["description"], function["parameters"])
        for function in functions
    }


def everyday_prompts() -> list[str]:
    return (FOLDER / "everyday.txt").read_text("utf-8").splitlines()


def _prompt(layout: Layout, question: str, document: str) -> str:
    parts = (question, document) if layout == "question_first" else (document, question)
    return "\n\n".join(parts)


def _calls(alternative: list[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(call["name"], call["arguments"]) for call in alternative)


def _rows(name: str) -> Iterator[dict[str, Any]]:
    # Not splitlines: a text may hold separators that JSON leaves unescaped.
    for line in (FOLDER / name).read_text("utf-8").split("\n"):
        if line:
            yield json.loads(line)
