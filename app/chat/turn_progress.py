"""How far a turn has come over all its rounds: the answer that streams, what is stored, the figures of the whole."""

from dataclasses import dataclass, field, replace

from app.chat.events import TurnEnded
from app.chat.turn import Answer
from runtime.protocol import RequestStats, Usage


@dataclass
class TurnProgress:
    """`answer` is that of the newest round; `message_id` is the last answer stored."""

    answer: Answer = field(default_factory=Answer)
    message_id: str | None = None
    is_stored: bool = False
    _earlier: list[Answer] = field(default_factory=list)

    def begin(self, answer: Answer) -> None:
        """The model answers again."""
        if self.is_stored:
            self._earlier.append(self.answer)
        self.answer, self.is_stored = answer, False

    def fail(self, error: str) -> None:
        """`error` is one readable line."""
        self.answer.outcome, self.answer.error = "failed", error

    def end(self, is_cancelled: bool) -> TurnEnded:
        """Tokens are those of all rounds; the first token's time is the first round's."""
        was_stopped = is_cancelled and self.answer.has_calls_to_run
        outcome = "cancelled" if was_stopped else self.answer.outcome
        return TurnEnded(outcome, self.message_id, self._usage(), self._stats(), self.answer.error)

    def _usage(self) -> Usage:
        usages = [answer.usage for answer in (*self._earlier, self.answer)]
        return Usage(
            sum(usage.prompt_tokens for usage in usages),
            sum(usage.cached_tokens for usage in usages),
            sum(usage.completion_tokens for usage in usages),
        )

    def _stats(self) -> RequestStats | None:
        stats = self.answer.stats
        first = self._earlier[0].stats if self._earlier else None
        return replace(stats, ttft_s=first.ttft_s) if stats is not None and first is not None else stats
