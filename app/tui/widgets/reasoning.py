"""The model's reasoning, folded to one line that says how long and how much; opens with a click or Enter."""

import time
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.figures import seconds_text
from app.tui.widgets.plain_text import PlainText


class ReasoningTitle(Static, can_focus=True):
    """The one line that is always there."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter,space", "toggle_fold", "Fold")]

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_toggle_fold()

    def action_toggle_fold(self) -> None:
        fold = self.parent
        if isinstance(fold, Reasoning):
            fold.is_folded = not fold.is_folded


class Reasoning(Vertical):
    """Reasoning of one answer; folded unless asked otherwise."""

    DEFAULT_CSS = """
    Reasoning {
        height: auto;
        margin: 0 0 1 0;
        ReasoningTitle { height: 1; width: 1fr; color: $text-muted; text-style: italic; }
        ReasoningTitle:hover, ReasoningTitle:focus { color: $text; }
        PlainText { color: $text-muted; padding: 0 1; border-left: solid $border-blurred; }
    }
    """

    def __init__(self, text: str = "", *, is_folded: bool = True) -> None:
        super().__init__()
        self._body = PlainText(text.strip("\n"))
        self._body.display = not is_folded
        self._title = ReasoningTitle(markup=False)
        self._started_at = time.monotonic()
        self._num_tokens = 0
        self._seconds: float | None = None
        """None while it grows; 0 for stored reasoning, whose time nobody noted."""

    @property
    def text(self) -> str:
        return self._body.text

    @property
    def is_folded(self) -> bool:
        return not self._body.display

    @is_folded.setter
    def is_folded(self, is_folded: bool) -> None:
        self._body.display = not is_folded
        self._show_title()

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._body

    def on_mount(self) -> None:
        self._show_title()

    def append(self, text: str, num_tokens: int) -> None:
        self._num_tokens += num_tokens
        self._body.append(text if self._body.text else text.lstrip("\n"))
        self._show_title()

    def close(self, *, is_stored: bool = False) -> None:
        """No more will come."""
        if self._seconds is None:
            self._seconds = 0.0 if is_stored else time.monotonic() - self._started_at
            self._show_title()

    def _show_title(self) -> None:
        mark = "▸" if self.is_folded else "▾"
        words = "Reasoning" if not self._seconds else "Reasoned"
        if self._seconds is None:
            words = f"Reasoning… {seconds_text(time.monotonic() - self._started_at)}"
        elif self._seconds:
            words += f" for {seconds_text(self._seconds)}"
        amount = f"{self._num_tokens:,} tokens" if self._num_tokens else f"{len(self._body.text.split())} words"
        title = Content(f"{mark} {words} · {amount}")
        if str(title) != str(self._title.content):
            self._title.update(title, layout=False)
