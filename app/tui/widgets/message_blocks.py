"""Blocks of the transcript: what the user said, and one-line notices. Draw only."""

from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widgets import Static

from app.sanitize import clean
from app.tui.display import shown
from app.tui.widgets.plain_text import PlainText

MAX_USER_ROWS = 40
"""Rows of a user's message shown before it is cut (only on the screen)."""


class CopyAsked(TextualMessage):
    """The user wants this text in the clipboard; `what` names it."""

    def __init__(self, text: str, what: str) -> None:
        super().__init__()
        self.text = text
        self.what = what


class Heading(Static):
    """Who speaks. A click copies the message."""

    class Clicked(TextualMessage):
        """The heading was clicked."""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Clicked())


class UserBlock(Vertical):
    """A user's message, exactly as typed; very long ones are cut on the screen until clicked."""

    DEFAULT_CSS = """
    UserBlock {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        border-left: thick $secondary;
        background: $surface;
        Heading { color: $text-secondary; text-style: bold; width: auto; }
        .attachment { color: $text-muted; }
        .more { color: $text-accent; width: auto; }
        .more:hover { text-style: underline; }
    }
    """

    def __init__(self, text: str, attachment_names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.text = clean(text)
        self.message_id: str | None = None
        """None until it is stored."""
        self._attachment_names = attachment_names
        self._body = PlainText(self.text, max_rows=MAX_USER_ROWS)

    def compose(self) -> ComposeResult:
        yield Heading(Content("You"), markup=False)
        for name in self._attachment_names:
            yield Static(Content("⊕ ") + shown(name), markup=False, classes="attachment")
        yield self._body
        more = ShowMore("", markup=False, classes="more")
        more.display = False
        yield more

    def on_resize(self) -> None:
        more = self.query_one(ShowMore)
        more.display = self._body.is_cut
        if self._body.is_cut:
            num_hidden = self._body.num_rows - MAX_USER_ROWS
            more.update(Content(f"▾ {num_hidden} more lines (all of it is sent and stored)"))

    def on_show_more_asked(self, message: "ShowMore.Asked") -> None:
        message.stop()
        self._body.show_all()
        self.query_one(ShowMore).display = False

    def on_heading_clicked(self, message: Heading.Clicked) -> None:
        message.stop()
        self.post_message(CopyAsked(self.text, "message"))


class ShowMore(Static):
    """A line that asks for what is hidden."""

    class Asked(TextualMessage):
        """Clicked."""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Asked())


class NoticeBlock(Static):
    """One line from the app itself: information, a warning or an error."""

    DEFAULT_CSS = """
    NoticeBlock {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        color: $text-muted;
        border-left: thick $border-blurred;
        &.warning { color: $text-warning; border-left: thick $warning; }
        &.error { color: $text-error; border-left: thick $error; }
    }
    """

    def __init__(self, text: str, kind: Literal["information", "warning", "error"] = "information") -> None:
        super().__init__(shown(text), markup=False, classes=kind)
