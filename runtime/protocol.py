"""What crosses the pipe between the app process and the engine process: frozen dataclasses, no torch.

Commands are imperative, events are past tense. Every accepted `Generate` ends in exactly one of
`Finished`, `Failed` or `Cancelled`. All events of a request carry its `request_id`.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from runtime.options import EngineOptions, SamplingOptions

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]
LoadPhase = Literal["opening", "dense", "experts", "slots", "warmup"]
RequestKind = Literal["chat", "side_call", "opening"]
"""A chat goes before side calls; side calls share what `EngineOptions.side_call_share` leaves them beside a chat.

An opening reads ahead what every chat with these system messages and tools begins with, whatever its user says first,
so that the first message finds it read. It runs as a chat does, and what it answers means nothing: cancel it when a
chat comes, which then goes on from where it was.
"""


@dataclass(frozen=True)
class ToolCall:
    """A call as parsed from the model's text; `arguments` is a JSON object."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ChatMessage:
    """One message as the chat template sees it.

    `generated_ids` are the token ids the model produced for an assistant message (reasoning, markup and end token
    included), valid for the tokenizer whose fingerprint is `tokenizer_fingerprint`; history reuses them.
    """

    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    generated_ids: tuple[int, ...] = ()
    tokenizer_fingerprint: str = ""


@dataclass(frozen=True)
class ToolSchema:
    """A tool offered to the model; `parameters` is a JSON schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


# ---- commands: app -> engine


@dataclass(frozen=True)
class LoadModel:
    """Load a checkpoint; answered by `LoadProgressed`… then `Loaded` or `LoadFailed`."""

    options: EngineOptions


@dataclass(frozen=True)
class TemplateSwitches:
    """What some chat templates can be told beside thinking; None leaves it to the template, others ignore it.

    A template refuses an effort it does not know; Qwen3.8's knows low, medium and xhigh, and keeps the reasoning of
    earlier turns unless `preserve_thinking` is False.
    """

    reasoning_effort: str | None = None
    preserve_thinking: bool | None = None


@dataclass(frozen=True)
class Generate:
    """Answer the last message. `thinking` None means the template's default.

    Up to four run at once; the others wait in a queue, and are `PromptAccepted` when they start. Pages are taken as
    answers grow; where they run short the later ones wait, side calls before chats, and a side call may have to give
    its place to a chat and read again after it. A side call may reuse what a chat left, but leaves nothing itself.
    """

    request_id: str
    messages: tuple[ChatMessage, ...]
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    tools: tuple[ToolSchema, ...] = ()
    thinking: bool | None = None
    conversation_id: str = ""
    """Hint for prefix reuse only; answers never depend on it."""
    switches: TemplateSwitches = TemplateSwitches()
    kind: RequestKind = "chat"


@dataclass(frozen=True)
class Cancel:
    """Stop a request within one step or chunk. Unknown or finished ids are ignored."""

    request_id: str


@dataclass(frozen=True)
class CountTokens:
    """Tokens the engine would prefill for these messages; answered by `TokensCounted`."""

    request_id: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...] = ()
    thinking: bool | None = None
    switches: TemplateSwitches = TemplateSwitches()


@dataclass(frozen=True)
class Score:
    """Teacher-forced log-probabilities; exactly one of `token_ids` and `text` is given. Answered by `Scored`.

    `logits_path` asks for fp32 logits [T, vocab] in a safetensors file under the name `logits`.
    """

    request_id: str
    token_ids: tuple[int, ...] | None = None
    text: str | None = None
    chunk_tokens: int | None = None
    by_decode: bool = False
    logits_path: str | None = None


@dataclass(frozen=True)
class GetStats:
    """Answered by `StatsReported`."""

    request_id: str


@dataclass(frozen=True)
class StartTrace:
    """Record what every step routes to from now on; answered by `TraceStarted`."""

    request_id: str
    path: str
    """The file that `StopTrace` makes."""


@dataclass(frozen=True)
class StopTrace:
    """Record no longer and give the file its name; answered by `TraceSaved`."""

    request_id: str


@dataclass(frozen=True)
class Shutdown:
    """End the process."""


Request = Generate | CountTokens | Score | GetStats | StartTrace | StopTrace
"""Commands that are answered under their request id."""
Command = LoadModel | Cancel | Request | Shutdown

# ---- events: engine -> app


@dataclass(frozen=True)
class EngineStats:
    """What the status bar shows. Rates are tokens per second; None: not measured yet.

    `slot_hit_rate` is 1 - missed/routed over the last 64 decoded tokens. `vram_headroom_bytes` is the limit minus what
    the engine holds (on CPU the limit is `--vram`, or None where no limit was given).
    """

    model_name: str = ""
    device: str = "cpu"
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    slot_hit_rate: float | None = None
    num_slots: int = 0
    num_slots_used: int = 0
    num_experts: int = 0
    vram_limit_bytes: int | None = None
    vram_used_bytes: int = 0
    vram_headroom_bytes: int | None = None
    context_used_tokens: int = 0
    context_limit_tokens: int = 0
    policy: str = "rule"
    overlap_requested: bool = True
    overlap_level: str = "off"
    """off, shared or resident: what actually runs."""
    overlap_reason: str = ""
    """Why the overlap path declines, in words for a person; empty when it runs."""
    num_routed: int = 0
    num_missed: int = 0
    num_missed_bytes: int = 0
    num_cached_records: int | None = None
    """Experts that fit into main memory beside the slots, where not all do; None: all are there."""
    num_from_disk: int = 0
    """Of the missed, those that main memory did not have either."""
    num_disk_bytes: int = 0
    """Read from the disk for experts since the model was loaded, for prompts too."""
    disk_rate: float | None = None
    """Share of the routed over the last 64 decoded tokens that came from the disk."""
    engine_rss_bytes: int = 0
    ram_limit_bytes: int | None = None
    """`--ram`: what the engine process was planned to stay below; None: what was free."""
    num_running: int = 0
    """Requests that are being computed, chats and side calls."""
    num_queued: int = 0
    """Requests that wait for their turn."""
    side_call_time_share: float | None = None
    """Of step time while a chat ran beside side calls, over the last seconds: what the side calls took."""

    @property
    def ram_hit_rate(self) -> float | None:
        """Share of the routed that main memory had but no slot; with the slot hit rate and the disk's share it is 1."""
        if self.slot_hit_rate is None or self.disk_rate is None:
            return None
        return 1.0 - self.slot_hit_rate - self.disk_rate


@dataclass(frozen=True)
class Usage:
    """Token counts of one request; `cached_tokens` of the prompt were not computed again."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class LoadProgressed:
    """Bytes done of total in one phase of loading."""

    phase: LoadPhase
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Loaded:
    """The model answers from now on."""

    model_name: str
    context_limit_tokens: int
    num_slots: int
    stats: EngineStats
    tokenizer_fingerprint: str
    has_chat_template: bool
    can_think: bool
    """The template honours a thinking switch."""
    default_sampling: SamplingOptions
    """From generation_config.json."""
    load_s: float
    notice: str = ""
    """One line where the checkpoint's config and its tensors disagree on the format; the tensors count."""


@dataclass(frozen=True)
class LoadFailed:
    """One readable line; the process ends after it. `kind` names the error class (CheckpointError, BudgetError)."""

    message: str
    kind: str = "EngineError"


@dataclass(frozen=True)
class PromptAccepted:
    """Prompt tokenised and admitted; prefill starts."""

    request_id: str
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class PrefillProgressed:
    """One chunk done."""

    request_id: str
    done_tokens: int
    total_tokens: int


@dataclass(frozen=True)
class TextProduced:
    """A piece of the answer, UTF-8 complete. Pieces of one channel concatenate to the whole."""

    request_id: str
    channel: Literal["text", "reasoning"]
    text: str
    num_tokens: int = 1


@dataclass(frozen=True)
class ToolCallProduced:
    """A well-formed call was parsed."""

    request_id: str
    call: ToolCall


@dataclass(frozen=True)
class ToolCallMalformed:
    """The model tried to call a tool and failed; `raw` is what it wrote."""

    request_id: str
    raw: str
    reason: str


@dataclass(frozen=True)
class StatsReported:
    """Answer to `GetStats` (its request_id), and sent on its own about five times a second while tokens flow ('')."""

    request_id: str
    stats: EngineStats


@dataclass(frozen=True)
class TokensCounted:
    """Answer to `CountTokens`."""

    request_id: str
    num_tokens: int


@dataclass(frozen=True)
class TraceStarted:
    """Answer to `StartTrace`."""

    request_id: str


@dataclass(frozen=True)
class TraceSaved:
    """Answer to `StopTrace`: how many decode steps the file holds."""

    request_id: str
    num_steps: int


@dataclass(frozen=True)
class Scored:
    """Answer to `Score`: `logprobs[i]` is that of token i+1 given tokens 0..i; `argmax[i]` is the best next token."""

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    argmax: tuple[int, ...]
    mean_nll: float
    perplexity: float
    stats: EngineStats
    seconds: float


@dataclass(frozen=True)
class RequestStats:
    """Timing of one request."""

    ttft_s: float = 0.0
    prefill_tok_s: float = 0.0
    decode_tok_s: float = 0.0
    """Excludes the first token; 0 where fewer than two were made."""
    engine: EngineStats = field(default_factory=EngineStats)


@dataclass(frozen=True)
class Finished:
    """The answer is complete. `generated_ids` include the end token where one was made."""

    request_id: str
    finish_reason: FinishReason
    usage: Usage
    stats: RequestStats
    generated_ids: tuple[int, ...]
    text: str
    """The whole `text` channel, for clients that don't stream."""
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    stopped_by: str = ""
    """The stop text that ended the answer, if one did."""
    logprobs: tuple[float, ...] = ()
    """Of each of `generated_ids`: its natural log-probability by the model itself, before penalties, temperature and
    cuts; NaN where the logits are broken."""


@dataclass(frozen=True)
class Cancelled:
    """The request was stopped; what had been produced stays valid."""

    request_id: str
    usage: Usage
    stats: RequestStats
    generated_ids: tuple[int, ...]
    text: str
    reasoning: str


@dataclass(frozen=True)
class Failed:
    """The request ended with an error: one readable line. `kind` names the error class (RequestError, EngineError)."""

    request_id: str
    message: str
    kind: str = "EngineError"


RequestEvent = (
    PromptAccepted
    | PrefillProgressed
    | TextProduced
    | ToolCallProduced
    | ToolCallMalformed
    | Finished
    | Cancelled
    | Failed
)
Event = (
    LoadProgressed
    | Loaded
    | LoadFailed
    | StatsReported
    | TokensCounted
    | TraceStarted
    | TraceSaved
    | Scored
    | RequestEvent
)
