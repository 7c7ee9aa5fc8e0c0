"""What a turn tells its front end. Frozen, past tense; one turn ends in exactly one `TurnEnded`."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from runtime.protocol import EngineStats, RequestStats, ToolCall, Usage

TurnOutcome = Literal["stop", "length", "tool_calls", "cancelled", "failed"]


@dataclass(frozen=True)
class EngineStarting:
    """The engine is loading; `fraction` is 0..1 over all phases.

    `detail` has the bytes of the phase and the time it will still take: '3.2 of 16.3 GB, 12 s left', or nothing.
    """

    phase: str
    fraction: float
    detail: str = ""


@dataclass(frozen=True)
class EngineReady:
    """The model answers from now on."""

    model_name: str
    stats: EngineStats


@dataclass(frozen=True)
class UserMessageStored:
    """The user's message is on disk; nothing later can lose it."""

    message_id: str


@dataclass(frozen=True)
class PromptStarted:
    """Prefill starts: how much is new."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class PrefillAdvanced:
    """Tokens of the prompt done."""

    done_tokens: int
    total_tokens: int


@dataclass(frozen=True)
class AnswerTextStreamed:
    """Sanitised text to append to the answer or to its reasoning."""

    channel: Literal["text", "reasoning"]
    text: str


@dataclass(frozen=True)
class ToolCallShown:
    """The model called a tool; this release shows the call and runs none."""

    call: ToolCall


@dataclass(frozen=True)
class ToolCallRejected:
    """The model wrote a call that can't be parsed."""

    raw: str
    reason: str


@dataclass(frozen=True)
class StatsUpdated:
    """Live figures for the status bar."""

    stats: EngineStats


@dataclass(frozen=True)
class NoticeShown:
    """One readable line the user should see while the turn goes on, such as a message that could not be saved."""

    text: str


@dataclass(frozen=True)
class TurnEnded:
    """The answer is stored. `error` is one readable line when the outcome is failed, else ''."""

    outcome: TurnOutcome
    message_id: str | None
    usage: Usage
    stats: RequestStats | None
    error: str = ""


TurnEvent = (
    EngineStarting
    | EngineReady
    | UserMessageStored
    | PromptStarted
    | PrefillAdvanced
    | AnswerTextStreamed
    | ToolCallShown
    | ToolCallRejected
    | StatsUpdated
    | NoticeShown
    | TurnEnded
)

TurnEvents = AsyncGenerator[TurnEvent, None]
"""Closing it before its end cancels what it does."""
