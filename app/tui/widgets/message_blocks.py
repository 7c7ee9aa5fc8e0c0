"""The blocks of the transcript: what the user said, what the model answered, and one-line notices. Draw only."""

import json
from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widgets import Static

from app.messages import Message
from app.sanitize import clean
from app.tui.display import shown
from app.tui.widgets.answer_body import AnswerBody
from app.tui.widgets.plain_text import PlainText
from app.tui.widgets.reasoning import Reasoning
from runtime.protocol import ToolCall

MAX_USER_ROWS = 40
"""Rows of a user's message shown before it is cut (only on the screen)."""

STATUS_WORDS = {"cancelled": "stopped", "failed": "failed", "length": "ended at the token limit"}


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


class ToolCard(Static):
    """A tool call of the model: name and arguments, or what it wrote and why that is no call."""

    DEFAULT_CSS = """
    ToolCard {
        height: auto;
        max-height: 16;
        margin: 0 0 1 0;
        padding: 0 1;
        border: round $border-blurred;
        &.rejected { border: round $warning; }
    }
    """

    @classmethod
    def of_call(cls, call: ToolCall) -> "ToolCard":
        arguments = clean(json.dumps(call.arguments, ensure_ascii=False, indent=2))
        title = Content.assemble(("Tool call ", "bold"), shown(call.name))
        note = Content.styled("Not run: this version shows tool calls only.", "dim")
        return cls(Content.assemble(title, "\n", arguments, "\n", note), markup=False)

    @classmethod
    def of_rejected(cls, raw: str, reason: str) -> "ToolCard":
        title = Content.assemble(("Unreadable tool call ", "bold"), shown(reason))
        return cls(Content.assemble(title, "\n", clean(raw)), markup=False, classes="rejected")


class AnswerBlock(Vertical):
    """One answer, growing or complete: reasoning, text, tool calls, and a line about how it ended."""

    DEFAULT_CSS = """
    AnswerBlock {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        border-left: blank;
        Heading { color: $text-primary; text-style: bold; width: auto; }
        .ending { color: $text-muted; height: auto; margin: 1 0 0 0; }
        .ending.failed { color: $text-error; }
        .waiting { color: $text-muted; height: 1; }
    }
    """

    def __init__(self, model_name: str, *, are_reasonings_folded: bool = True) -> None:
        super().__init__()
        self._model_name = model_name
        self._is_folded = are_reasonings_folded
        self._heading = Heading(shown(model_name or "Model"), markup=False)
        self._waiting = Static("", markup=False, classes="waiting")
        self._reasoning: Reasoning | None = None
        self._body: AnswerBody | None = None

    @property
    def text(self) -> str:
        """The visible answer, as stored."""
        return self._body.source if self._body is not None else ""

    @property
    def body(self) -> AnswerBody | None:
        return self._body

    @property
    def has_output(self) -> bool:
        """Anything of the answer is on the screen."""
        return self._body is not None or self._reasoning is not None or bool(self.query(ToolCard))

    def compose(self) -> ComposeResult:
        yield self._heading
        yield self._waiting

    def set_model_name(self, name: str) -> None:
        self._heading.update(shown(name))

    def show_waiting(self, text: str) -> None:
        """One line about what is going on before the first text."""
        self._waiting.update(Content(text), layout=False)

    async def show_stored(self, message: Message) -> None:
        """Fill the block with a complete message."""
        self._waiting.display = False
        if message.reasoning:
            self._reasoning = Reasoning(clean(message.reasoning), is_folded=self._is_folded)
            await self.mount(self._reasoning)
            self._reasoning.close(is_stored=True)
        if message.content:
            self._body = AnswerBody(clean(message.content))
            await self.mount(self._body)
        for call in message.tool_calls:
            await self.mount(ToolCard.of_call(call))
        if message.status in STATUS_WORDS:
            await self.show_ending(STATUS_WORDS[message.status])

    async def push(self, channel: Literal["text", "reasoning"], text: str, num_tokens: int) -> None:
        """Show a further piece of the growing answer."""
        self._waiting.display = False
        if channel == "reasoning":
            if self._reasoning is None:
                self._reasoning = Reasoning(is_folded=self._is_folded)
                await self.mount(self._reasoning)
            self._reasoning.append(text, num_tokens)
            return
        if self._reasoning is not None:
            self._reasoning.close()
        if self._body is None:
            self._body = AnswerBody()
            await self.mount(self._body)
        await self._body.push(text)

    async def add_card(self, card: ToolCard) -> None:
        self._waiting.display = False
        await self.mount(card)

    async def finish(self, ending: str, *, is_failure: bool = False) -> None:
        """No more will come; `ending` is one line on how it went, or ''."""
        self._waiting.display = False
        if self._reasoning is not None:
            self._reasoning.close()
        if self._body is not None:
            await self._body.finish()
        if ending:
            await self.show_ending(ending, is_failure=is_failure)

    async def show_ending(self, ending: str, *, is_failure: bool = False) -> None:
        classes = "ending failed" if is_failure else "ending"
        await self.mount(Static(shown(ending), markup=False, classes=classes))

    def fold_reasoning(self, is_folded: bool) -> None:
        self._is_folded = is_folded
        if self._reasoning is not None:
            self._reasoning.is_folded = is_folded

    def on_heading_clicked(self, message: Heading.Clicked) -> None:
        message.stop()
        self.post_message(CopyAsked(self.text, "answer"))


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
