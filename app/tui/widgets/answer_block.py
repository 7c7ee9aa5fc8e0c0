"""One answer of the transcript, growing or complete: reasoning, text and tool calls in order, and how it ended."""

from collections.abc import Sequence
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.messages import Message
from app.sanitize import clean
from app.tui.display import shown
from app.tui.widgets.answer_body import AnswerBody
from app.tui.widgets.message_blocks import CopyAsked, Heading
from app.tui.widgets.reasoning import Reasoning
from app.tui.widgets.tool_card import ToolCard

STATUS_WORDS = {"cancelled": "stopped", "failed": "failed", "length": "ended at the token limit"}


class AnswerBlock(Vertical):
    """All rounds of one answer: what the model says before, between and after its tool calls."""

    DEFAULT_CSS = """
    AnswerBlock {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        border-left: blank;
        Heading { color: $text-primary; text-style: bold; width: auto; }
        AnswerBody { margin: 0 0 1 0; }
        AnswerBody:last-child { margin: 0; }
        .ending { color: $text-muted; height: auto; }
        .ending.failed { color: $text-error; }
        .waiting { color: $text-muted; height: 1; }
    }
    """

    def __init__(self, model_name: str, *, are_reasonings_folded: bool = True) -> None:
        super().__init__()
        self.message_id: str | None = None
        """Of the last stored message shown here; None while it grows."""
        self._is_folded = are_reasonings_folded
        self._heading = Heading(shown(model_name or "Model"), markup=False)
        self._waiting = Static("", markup=False, classes="waiting")
        self._reasoning: Reasoning | None = None
        self._body: AnswerBody | None = None
        self._bodies: list[AnswerBody] = []
        self._cards: dict[str, ToolCard] = {}

    @property
    def text(self) -> str:
        """The visible answer, as stored; rounds are parted by an empty line."""
        return "\n\n".join(body.source for body in self._bodies if body.source)

    @property
    def has_output(self) -> bool:
        """Anything of the answer is on the screen."""
        return bool(self._bodies) or bool(self.query(Reasoning)) or bool(self.query(ToolCard))

    def compose(self) -> ComposeResult:
        yield self._heading
        yield self._waiting

    def set_model_name(self, name: str) -> None:
        self._heading.update(shown(name))

    def show_waiting(self, text: str) -> None:
        """One line about what is going on before the first text."""
        self._waiting.update(Content(text), layout=False)

    # ---- stored answers

    async def show_stored(self, messages: Sequence[Message]) -> None:
        """Fill the block with the complete messages of one answer: the model's, each followed by its tools' results."""
        self._waiting.display = False
        for place, message in enumerate(messages):
            if message.role == "assistant":
                await self._show_round(message, _results_after(messages, place))
        last = messages[-1]
        self.message_id = last.id
        if last.status in STATUS_WORDS:
            await self.show_ending(STATUS_WORDS[last.status])

    async def _show_round(self, message: Message, results: Sequence[Message]) -> None:
        if message.reasoning:
            reasoning = Reasoning(clean(message.reasoning), is_folded=self._is_folded)
            await self.mount(reasoning)
            reasoning.close(is_stored=True)
        if message.content:
            self._bodies.append(AnswerBody(clean(message.content)))
            await self.mount(self._bodies[-1])
        for place, call in enumerate(message.tool_calls):
            card = ToolCard.of_call(call, state="unknown")
            if place < len(results):
                result = results[place]
                card.show_end(result.tool_status or "done", result.content, full_text=result.full_result)
            await self.mount(card)
        for malformed in message.malformed_calls:
            await self.mount(ToolCard.of_rejected(malformed.raw, malformed.reason))

    # ---- growing answers

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
            self._bodies.append(self._body)
            await self.mount(self._body)
        await self._body.push(text)

    async def add_card(self, card: ToolCard) -> None:
        """Show a call; text that follows is another round's."""
        self._waiting.display = False
        await self._close_round()
        self._cards[card.call_id] = card
        await self.mount(card)

    def card(self, call_id: str) -> ToolCard | None:
        """The card of a call of this answer."""
        return self._cards.get(call_id)

    async def _close_round(self) -> None:
        if self._reasoning is not None:
            self._reasoning.close()
        if self._body is not None:
            await self._body.finish()
        self._reasoning = self._body = None

    async def finish(self, ending: str, *, is_failure: bool = False) -> None:
        """No more will come; `ending` is one line on how it went, or ''."""
        self._waiting.display = False
        await self._close_round()
        if ending:
            await self.show_ending(ending, is_failure=is_failure)

    async def show_ending(self, ending: str, *, is_failure: bool = False) -> None:
        classes = "ending failed" if is_failure else "ending"
        await self.mount(Static(shown(ending), markup=False, classes=classes))

    def fold_reasoning(self, is_folded: bool) -> None:
        self._is_folded = is_folded
        for reasoning in self.query(Reasoning):
            reasoning.is_folded = is_folded

    def on_heading_clicked(self, message: Heading.Clicked) -> None:
        message.stop()
        self.post_message(CopyAsked(self.text, "answer"))


def _results_after(messages: Sequence[Message], place: int) -> list[Message]:
    """The tools' messages that follow this one."""
    results: list[Message] = []
    for message in messages[place + 1 :]:
        if message.role != "tool":
            break
        results.append(message)
    return results
