"""One request to the engine, from its first event to its last: cleans the text, collects the answer, judges the end."""

from contextlib import aclosing
from dataclasses import dataclass, field

from app.chat.events import (
    AnswerTextStreamed,
    PrefillAdvanced,
    PromptStarted,
    ToolCallRejected,
    ToolCallShown,
    TurnEvent,
    TurnEvents,
    TurnOutcome,
)
from app.engine import Engine
from app.errors import HotslotError
from app.messages import MalformedCall, MessageStatus, new_id
from app.sanitize import StreamCleaner, clean, clean_line
from runtime.protocol import (
    Cancelled,
    Failed,
    Finished,
    Generate,
    PrefillProgressed,
    PromptAccepted,
    RequestEvent,
    RequestStats,
    TextProduced,
    ToolCall,
    ToolCallMalformed,
    ToolCallProduced,
    Usage,
)


@dataclass
class Answer:
    """What came of a turn so far. `error` is one readable line where the outcome is failed."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    call_ids: list[str] = field(default_factory=list)
    """Of `tool_calls`, in the events of the turn."""
    malformed_calls: list[MalformedCall] = field(default_factory=list)
    generated_ids: tuple[int, ...] = ()
    outcome: TurnOutcome = "cancelled"
    """Cancelled until the engine says otherwise: an abandoned turn was cancelled."""
    usage: Usage = field(default_factory=Usage)
    stats: RequestStats | None = None
    error: str = ""

    @property
    def is_empty(self) -> bool:
        """Nothing was produced that is worth storing."""
        return not (self.content or self.reasoning or self.tool_calls or self.malformed_calls)

    @property
    def has_calls_to_run(self) -> bool:
        """There are calls, and the answer was not cut in the middle of one."""
        return bool(self.tool_calls or self.malformed_calls) and self.outcome in ("stop", "tool_calls", "cancelled")

    @property
    def status(self) -> MessageStatus:
        """How the stored message ended."""
        outcomes: dict[TurnOutcome, MessageStatus] = {"cancelled": "cancelled", "failed": "failed", "length": "length"}
        return outcomes.get(self.outcome, "complete")


class Turn:
    """Runs one request; `answer` is valid at any time, complete once `events` has ended."""

    def __init__(self, engine: Engine, request: Generate) -> None:
        self.request = request
        self.answer = Answer()
        self._engine = engine
        self._cleaners = {"text": StreamCleaner(), "reasoning": StreamCleaner()}

    async def events(self) -> TurnEvents:
        """Everything but the end, which is in `answer`. Raises nothing a user could cause."""
        try:
            async with aclosing(self._engine.generate(self.request)) as events:
                async for event in events:
                    for shown in self._take(event):
                        yield shown
        except HotslotError as error:
            self.answer.outcome, self.answer.error = "failed", clean_line(str(error))

    def _take(self, event: RequestEvent) -> list[TurnEvent]:
        match event:
            case PromptAccepted():
                self.answer.usage = Usage(event.prompt_tokens, event.cached_tokens)
                return [PromptStarted(event.prompt_tokens, event.cached_tokens)]
            case PrefillProgressed():
                return [PrefillAdvanced(event.done_tokens, event.total_tokens)]
            case TextProduced():
                return self._add_text(event.channel, self._cleaners[event.channel].push(event.text))
            case ToolCallProduced():
                self.answer.tool_calls.append(event.call)
                self.answer.call_ids.append(new_id())
                return [ToolCallShown(event.call, self.answer.call_ids[-1])]
            case ToolCallMalformed():
                malformed = MalformedCall(clean(event.raw), clean_line(event.reason))
                self.answer.malformed_calls.append(malformed)
                return [ToolCallRejected(malformed.raw, malformed.reason)]
            case _:
                return self._end(event)

    def _add_text(self, channel: str, text: str) -> list[TurnEvent]:
        if not text:
            return []
        if channel == "text":
            self.answer.content += text
            return [AnswerTextStreamed("text", text)]
        self.answer.reasoning += text
        return [AnswerTextStreamed("reasoning", text)]

    def _end(self, event: Finished | Cancelled | Failed) -> list[TurnEvent]:
        if isinstance(event, Failed):
            self.answer.outcome, self.answer.error = "failed", clean_line(event.message)
        else:
            self.answer.outcome = event.finish_reason if isinstance(event, Finished) else "cancelled"
            self.answer.usage, self.answer.stats = event.usage, event.stats
            self.answer.generated_ids = event.generated_ids
        return []
