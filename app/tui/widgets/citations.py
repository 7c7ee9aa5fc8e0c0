"""The places an answer cites, under it: a click or Enter opens one."""

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.documents.citations import CitedPassage
from app.tui.display import MUTED, shown

MOST_SHOWN = 8
"""/cite opens the others."""


class CitationLine(Static, can_focus=True):
    """One place and the beginning of its text."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "open", "Open")]

    class Opened(Message):
        """The user wants to read it."""

        def __init__(self, cited: CitedPassage) -> None:
            super().__init__()
            self.cited = cited

    def __init__(self, number: int, cited: CitedPassage) -> None:
        excerpt = shown((cited.quote or cited.excerpt)[:160])
        super().__init__(
            Content.assemble((f"{number} ", "$text-accent"), shown(cited.place), ("  ", ""), (excerpt.plain, MUTED)),
            markup=False,
        )
        self._cited = cited

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        self.post_message(self.Opened(self._cited))


class Citations(Vertical):
    """In order of appearance."""

    DEFAULT_CSS = """
    Citations {
        height: auto;
        margin: 1 0 0 0;
        CitationLine { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
        CitationLine:hover, CitationLine:focus { text-style: underline; }
    }
    """

    def __init__(self, passages: tuple[CitedPassage, ...]) -> None:
        lines = [CitationLine(number, cited) for number, cited in enumerate(passages[:MOST_SHOWN], 1)]
        super().__init__(*lines)
