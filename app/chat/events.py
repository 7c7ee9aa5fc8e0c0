"""What a turn tells its front end. Frozen, past tense; one turn ends in exactly one `TurnEnded`.

A turn has rounds: the model answers or calls tools, the calls run one after another, and what came of them goes back to
the model. Each call has an id that its events share, in this order:

1. `ToolCallShown` as soon as the model has written it (`ToolCallRejected` instead where it can't be read).
2. `PermissionAsked` where nobody has decided yet. The turn waits: the front end must answer with
   `ChatSession.answer_permission(call_id, PermissionAnswer(...))`, or cancel the turn. Answering from inside the
   iteration is fine. Never answer yes for the user.
3. `ToolCallStarted` when it runs. Calls that are denied, unknown or unfit never start.
4. `ToolCallEnded` with what the model reads, for every call that was shown, also when the turn is cancelled meanwhile.

A turn without tools (a session without a `ToolBox`) has one round and none of 2 to 4.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from app.messages import ReadingMode, ToolStatus
from app.tools.permissions import PermissionScope
from app.tools.registry import Risk
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
class DocumentPlanned:
    """How a document will be shown to the model with this message; comes before `PromptStarted`.

    `num_tokens` is what is shown of its `document_tokens` (those of a document far too long are an estimate);
    `context_share` is the first over the whole context. `line` says all of it.
    """

    name: str
    mode: ReadingMode
    why: str
    num_tokens: int
    document_tokens: int
    context_share: float

    @property
    def line(self) -> str:
        """'report.pdf: read whole, 2,310 tokens, 28 % of the context (it fits).'"""
        what = {"whole": "read whole", "passages": "passages", "all": "all of it, in pieces"}[self.mode]
        return f"{self.name}: {what}, {self.num_tokens:,} tokens, {self.context_share:.0%} of the context ({self.why})."


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
    """The model called a tool; nothing has run yet."""

    call: ToolCall
    call_id: str = ""


@dataclass(frozen=True)
class ToolCallRejected:
    """The model wrote a call that can't be parsed."""

    raw: str
    reason: str


@dataclass(frozen=True)
class PermissionAsked:
    """May this call run? Everything is sanitised text, and exactly what will happen.

    `permission` is what is allowed or denied: the tool's name, or 'shell' for a command line that needs a shell.
    `folder` is the absolute folder the call touches, '' where it touches none (then nothing can be remembered for a
    folder). `diff` is the change of a write as a unified diff, else ''. `scopes` are the answers that make sense here.
    """

    call_id: str
    call: ToolCall
    permission: str
    risk: Risk
    folder: str
    diff: str
    scopes: tuple[PermissionScope, ...]
    note: str = ""
    """A sentence the user should know before deciding, or ''."""


@dataclass(frozen=True)
class PermissionAnswer:
    """What the user decided, and for what: this call, every call in the folder, or every call of the tool."""

    is_allowed: bool
    scope: PermissionScope = "once"


@dataclass(frozen=True)
class ToolCallStarted:
    """The call is allowed and runs."""

    call_id: str
    call: ToolCall


@dataclass(frozen=True)
class ToolCallEnded:
    """`text` is what the model reads of it, sanitised; `status` says how it came about.

    `full_text` is all of a result of which the model reads less (a summary, its beginning), else ''.
    """

    call_id: str
    call: ToolCall
    status: ToolStatus
    text: str
    seconds: float = 0.0
    full_text: str = ""


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
    | DocumentPlanned
    | PromptStarted
    | PrefillAdvanced
    | AnswerTextStreamed
    | ToolCallShown
    | ToolCallRejected
    | PermissionAsked
    | ToolCallStarted
    | ToolCallEnded
    | StatsUpdated
    | NoticeShown
    | TurnEnded
)

TurnEvents = AsyncGenerator[TurnEvent, None]
"""Closing it before its end cancels what it does."""
