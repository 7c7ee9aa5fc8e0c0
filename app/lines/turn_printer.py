"""Prints one turn as it comes: the answer to stdout; reasoning, progress and notices to stderr, as whole lines."""

import time
from collections.abc import Callable

from app.call_text import call_text
from app.chat.events import (
    AnswerTextStreamed,
    DocumentPlanned,
    EngineReady,
    EngineStarting,
    NoticeShown,
    PrefillAdvanced,
    ToolCallEnded,
    ToolCallRejected,
    ToolCallShown,
    TurnEnded,
    TurnEvent,
)
from app.console import Console
from app.sanitize import clean_line

PROGRESS_S = 10.0
"""Between two lines of progress: enough to know that it goes on, few enough for a screen reader."""


class TurnPrinter:
    """Never rewrites a line. `end` is how the turn ended, None until it has."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._told_at: float | None = None
        self._is_reasoning = False
        self.end: TurnEnded | None = None

    def show(self, event: TurnEvent) -> None:
        """Print one event."""
        match event:
            case EngineStarting(_, fraction, detail):
                self._progress(f"Loading the model… {fraction:.0%} {detail}".rstrip(), is_first_told=True)
            case EngineReady(model_name):
                self._told_at = None
                self._console.remark(f"{clean_line(model_name)} is ready.")
            case DocumentPlanned():
                self._console.remark(event.line)
            case PrefillAdvanced(done, total) if done < total:
                self._progress(f"Reading the prompt: {done:,} of {total:,} tokens")
            case AnswerTextStreamed(channel, text):
                self._show_text(channel, text)
            case ToolCallShown(call):
                self._console.remark(f"Tool call: {call_text(call)}")
            case ToolCallEnded(_, call, status, text):
                self._console.remark(f"{clean_line(call.name)} {status}: {_first_words(text)}")
            case ToolCallRejected(_, reason):
                self._console.notice(f"the model wrote a tool call that can't be read: {reason}")
            case NoticeShown(text):
                self._console.notice(text)
            case TurnEnded():
                self._show_end(event)

    def _progress(self, text: str, is_first_told: bool = False) -> None:
        now = self._clock()
        if self._told_at is None:
            self._told_at = now if not is_first_told else float("-inf")
        if now - self._told_at >= PROGRESS_S:
            self._told_at = now
            self._console.remark(text)

    def _show_text(self, channel: str, text: str) -> None:
        if channel == "reasoning":
            if not self._is_reasoning:
                self._is_reasoning = True
                self._console.remark("Reasoning:")
            self._console.reasoning(text)
            return
        if self._is_reasoning:
            self._is_reasoning = False
            self._console.remark("Answer:")
        self._console.answer(text)

    def _show_end(self, event: TurnEnded) -> None:
        self.end = event
        self._console.end_line()
        match event.outcome:
            case "failed":
                self._console.notice(event.error)
            case "cancelled":
                self._console.remark("Stopped; what was said is kept.")
            case "length":
                self._console.notice("the answer met its token limit and is not complete.")


def _first_words(text: str, limit: int = 200) -> str:
    line = clean_line(text)
    return line if len(line) <= limit else f"{line[:limit]}… (/result prints all of it)"
