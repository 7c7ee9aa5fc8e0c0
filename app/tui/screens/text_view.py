"""One long text to read: a tool's whole result, a passage of a document, a document."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from app.sanitize import clean
from app.tui.clipboard import copy_text
from app.tui.display import shown
from app.tui.widgets.plain_text import PlainText


class TextScreen(ModalScreen[None]):
    """Scrolls with the arrows; `first_line` (from 0) is on top at first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back", priority=True),
        Binding("ctrl+y", "copy", "Copy", priority=True),
    ]

    def __init__(self, title: str, text: str, first_line: int = 0) -> None:
        super().__init__(classes="panel-screen")
        self._title = title
        self._text = clean(text)
        self._first_line = first_line

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = shown(self._title)
            box.border_subtitle = Content("↑↓ scroll · Ctrl+Y copy · Esc back")
            with VerticalScroll():
                yield PlainText(self._text)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        if self._first_line:
            self.call_after_refresh(self._show_line)

    def _show_line(self) -> None:
        row = self.query_one(PlainText).row_of_line(self._first_line)
        self.query_one(VerticalScroll).scroll_to(y=row, animate=False)

    async def action_copy(self) -> None:
        await copy_text(self.app, self._text)
        self.notify(f"Copied {len(self._text)} characters.", markup=False)
