"""One tool call in the transcript: name, arguments, state; result and arguments in full when it is unfolded."""

import json
from typing import ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widgets import Static

from app.figures import count_text, seconds_text
from app.messages import ToolStatus
from app.sanitize import clean
from app.tui.display import MUTED, shown
from app.tui.widgets.plain_text import PlainText
from runtime.protocol import ToolCall

CallState = Literal["shown", "asked", "running", "unknown"] | ToolStatus
STATE_WORDS: dict[str, tuple[str, str]] = {
    "shown": ("called", MUTED),
    "asked": ("waits for your permission", "$text-warning"),
    "running": ("runs…", "$text-accent"),
    "done": ("done", "$text-success"),
    "failed": ("failed", "$text-error"),
    "denied": ("denied", "$text-warning"),
    "rejected": ("not run", "$text-warning"),
    "cancelled": ("stopped", MUTED),
    "unknown": ("not run", MUTED),
}
LONGEST_ARGUMENTS = 120
MOST_RESULT_ROWS = 20


class OpenTextAsked(TextualMessage):
    """The user wants to read all of a text."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.title = title
        self.text = text


class CardTitle(Static, can_focus=True):
    """The one line that is always there."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "toggle_fold", "Fold")]

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_toggle_fold()

    def action_toggle_fold(self) -> None:
        card = self.parent
        if isinstance(card, ToolCard):
            card.is_folded = not card.is_folded


class OpenLine(Static, can_focus=True):
    """A click or Enter asks for the whole result."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "open_result", "Open")]

    class Asked(TextualMessage):
        """Opened."""

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_open_result()

    def action_open_result(self) -> None:
        self.post_message(self.Asked())


class ToolCard(Vertical):
    """A call, folded unless it needs attention. Draws what it is told; knows nothing of tools."""

    DEFAULT_CSS = """
    ToolCard {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        border-left: thick $border-blurred;
        &.asked, &.rejected, &.denied { border-left: thick $warning; }
        &.failed { border-left: thick $error; }
        &.done { border-left: thick $success; }
        &.running { border-left: thick $accent; }
        CardTitle { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
        CardTitle:hover, CardTitle:focus { text-style: underline; }
        .card-details { height: auto; }
        .card-label { color: $text-muted; height: 1; }
        PlainText { padding: 0 1; }
        OpenLine { color: $text-accent; width: auto; height: 1; }
        OpenLine:hover, OpenLine:focus { text-style: underline; }
    }
    """

    def __init__(self, name: str, arguments: str, short: str, state: CallState = "shown", call_id: str = "") -> None:
        super().__init__(classes=state)
        self.call_id = call_id
        self.state: CallState = state
        self._tool_name = name
        self._short = short
        self._note = ""
        self._result = ""
        self._full = ""
        self._title = CardTitle(markup=False)
        self._details = Vertical(classes="card-details")
        self._details.display = False
        self._arguments = PlainText(arguments)
        self._result_body = PlainText(max_rows=MOST_RESULT_ROWS)

    @classmethod
    def of_call(cls, call: ToolCall, call_id: str = "", state: CallState = "shown") -> "ToolCard":
        short = ", ".join(f"{name}={_json(value)}" for name, value in call.arguments.items())
        return cls(call.name, clean(json.dumps(call.arguments, ensure_ascii=False, indent=2)), short, state, call_id)

    @classmethod
    def of_rejected(cls, raw: str, reason: str) -> "ToolCard":
        card = cls("Unreadable tool call", clean(raw), reason, "rejected")
        card.is_folded = False
        return card

    @property
    def is_folded(self) -> bool:
        return not self._details.display

    @is_folded.setter
    def is_folded(self, is_folded: bool) -> None:
        self._details.display = not is_folded
        self._show_title()

    @property
    def whole_result(self) -> str:
        """Everything the tool returned, also where the model reads less of it."""
        return self._full or self._result

    def compose(self) -> ComposeResult:
        yield self._title
        with self._details:
            yield Static(Content("Arguments"), markup=False, classes="card-label")
            yield self._arguments
            label = Static(Content("Result"), markup=False, classes="card-label result")
            label.display = False
            yield label
            yield self._result_body
            line = OpenLine("", markup=False)
            line.display = False
            yield line

    def on_mount(self) -> None:
        self._show_title()
        self._show_result()

    def show_state(self, state: CallState) -> None:
        """The call goes on."""
        self.remove_class(self.state)
        self.state = state
        self.add_class(state)
        self._show_title()

    def show_end(self, status: ToolStatus, text: str, seconds: float = 0.0, full_text: str = "") -> None:
        """The call is over; `text` is what the model reads, `full_text` all of it where that is less."""
        self._result, self._full = clean(text), clean(full_text)
        self._note = seconds_text(seconds) if seconds >= 0.05 else ""
        self.show_state(status)
        if self.is_mounted:
            self._show_result()

    def _show_result(self) -> None:
        if not self._result:
            return
        self.query_one(".result", Static).display = True
        if not self._result_body.text:
            self._result_body.append(self._result.rstrip("\n"))
        line = self.query_one(OpenLine)
        if self._full:
            line.update(Content(f"↗ open the whole result, {count_text(len(self._full))} characters"))
        elif self._result.count("\n") >= MOST_RESULT_ROWS:
            line.update(Content("↗ open all of it"))
        line.display = bool(self._full) or self._result.count("\n") >= MOST_RESULT_ROWS

    def on_open_line_asked(self, message: OpenLine.Asked) -> None:
        message.stop()
        if self.whole_result:
            self.post_message(OpenTextAsked(f"Result of {self._tool_name}", self.whole_result))

    def _show_title(self) -> None:
        words, style = STATE_WORDS[self.state]
        mark = "▸" if self.is_folded else "▾"
        short = shown(self._short).plain
        if len(short) > LONGEST_ARGUMENTS:
            short = short[: LONGEST_ARGUMENTS - 1] + "…"
        note = f" · {self._note}" if self._note else ""
        first = f" → {shown(self._result[:200]).plain}" if self._result and self.is_folded else ""
        name = Content.assemble(f"{mark} ", shown(self._tool_name, "bold"), "  ", (words, style), (note, MUTED))
        self._title.update(Content.assemble(name, (f"  {short}{first}", MUTED)))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
