"""Draws one turn: every delivered event goes into the answer block, the transcript or the status bar."""

from app.chat.events import (
    DocumentPlanned,
    EngineReady,
    EngineStarting,
    NoticeShown,
    PermissionAsked,
    PrefillAdvanced,
    PromptStarted,
    StatsUpdated,
    ToolCallEnded,
    ToolCallRejected,
    ToolCallShown,
    ToolCallStarted,
    TurnEnded,
)
from app.figures import seconds_text
from app.tui.bridge import Delivered, TextPiece
from app.tui.widgets.answer_block import STATUS_WORDS, AnswerBlock
from app.tui.widgets.message_blocks import NoticeBlock
from app.tui.widgets.status_bar import StatusBar
from app.tui.widgets.tool_card import CallState, ToolCard
from app.tui.widgets.transcript import Transcript


class TurnView:
    """`answer` is the growing block, or None while the engine only warms up."""

    def __init__(self, transcript: Transcript, status: StatusBar, answer: AnswerBlock | None) -> None:
        self._transcript = transcript
        self._status = status
        self.answer = answer
        self.outcome = ""
        """Empty until the turn has ended."""
        self._is_decoding = False
        self._cached_tokens = 0

    async def show(self, event: Delivered) -> None:
        """Draw one event."""
        match event:
            case TextPiece():
                await self._show_text(event)
            case EngineStarting():
                self._status.load_phase, self._status.load_fraction = event.phase, event.fraction
                self._wait(f"Loading the model… {event.fraction:.0%} {event.detail}".rstrip())
            case EngineReady():
                self._show_ready(event)
            case DocumentPlanned():
                await self._transcript.add(NoticeBlock(event.line), before=self.answer)
            case PromptStarted():
                self._cached_tokens = event.cached_tokens
                self._show_prefill(event.cached_tokens, event.prompt_tokens)
            case PrefillAdvanced():
                self._show_prefill(event.done_tokens, event.total_tokens)
            case ToolCallShown():
                await self._add_card(ToolCard.of_call(event.call, event.call_id))
            case PermissionAsked():
                self._note_call(event.call_id, "asked", "waiting for you")
            case ToolCallStarted():
                self._note_call(event.call_id, "running", "running a tool")
            case ToolCallEnded():
                self._end_call(event)
            case ToolCallRejected():
                await self._add_card(ToolCard.of_rejected(event.raw, event.reason))
            case StatsUpdated():
                self._status.note_stats(event.stats, is_decoding=self._is_decoding)
            case NoticeShown():
                await self._transcript.add(NoticeBlock(event.text, "warning"))
            case TurnEnded():
                await self._end(event)

    async def _show_text(self, piece: TextPiece) -> None:
        self._is_decoding = True
        self._status.activity = "reasoning" if piece.channel == "reasoning" else "answering"
        if self.answer is not None:
            await self.answer.push(piece.channel, piece.text, piece.num_pieces)

    async def _add_card(self, card: ToolCard) -> None:
        if self.answer is not None:
            await self.answer.add_card(card)

    def _note_call(self, call_id: str, state: CallState, activity: str) -> None:
        self._status.activity = activity
        if self.answer is not None and (card := self.answer.card(call_id)) is not None:
            card.show_state(state)

    def _end_call(self, event: ToolCallEnded) -> None:
        self._status.activity = "waiting"
        if self.answer is not None and (card := self.answer.card(event.call_id)) is not None:
            card.show_end(event.status, event.text, event.seconds, event.full_text)

    def _show_ready(self, event: EngineReady) -> None:
        self._status.load_fraction = None
        self._status.clear_rates()
        self._status.model = event.model_name
        self._status.note_stats(event.stats, is_decoding=False)
        if self.answer is not None:
            self.answer.set_model_name(event.model_name)

    def _show_prefill(self, done: int, total: int) -> None:
        self._status.activity = "reading"
        reused = f", {self._cached_tokens:,} of them known" if self._cached_tokens else ""
        self._wait(f"Reading {total:,} tokens{reused}… {done / total if total else 1:.0%}")

    def _wait(self, text: str) -> None:
        if self.answer is not None:
            self.answer.show_waiting(text)

    async def _end(self, event: TurnEnded) -> None:
        self.outcome = event.outcome
        if self.answer is None:
            return
        is_failure = event.outcome == "failed"
        if not self.answer.has_output and event.outcome in ("failed", "cancelled"):
            await self.answer.remove()
            text = event.error if is_failure else "Stopped before the answer began."
            await self._transcript.add(NoticeBlock(text, "error" if is_failure else "information"))
            return
        await self.answer.finish(ending_text(event), is_failure=is_failure)


def ending_text(event: TurnEnded) -> str:
    """One line on how an answer ended: reason, tokens, speed."""
    parts = [event.error or STATUS_WORDS.get(event.outcome, "")]
    if event.usage.completion_tokens:
        parts.append(f"{event.usage.completion_tokens:,} tokens")
    if event.stats is not None and event.stats.decode_tok_s:
        parts.append(f"{event.stats.decode_tok_s:.1f} tok/s")
    if event.stats is not None and event.stats.ttft_s:
        parts.append(f"first after {seconds_text(event.stats.ttft_s)}")
    return " · ".join(part for part in parts if part)
