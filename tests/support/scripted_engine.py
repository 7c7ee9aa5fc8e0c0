"""An `Engine` that plays scripts: texts with pauses, tool calls, refusals, a crash. No process, no model.

Every request plays the next script of the list, the last one again and again. `requests` keeps what was asked.
Side calls have scripts of their own, `side_scripts`, and are kept in `side_requests`; by default they say nothing.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from app.engine import ProgressCallback, StatsCallback
from app.errors import HotslotError
from runtime.errors import EngineError
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import (
    Cancelled,
    CountTokens,
    EngineStats,
    Failed,
    Finished,
    FinishReason,
    Generate,
    Loaded,
    LoadProgressed,
    PrefillProgressed,
    PromptAccepted,
    RequestEvent,
    RequestStats,
    Score,
    Scored,
    TextProduced,
    ToolCall,
    ToolCallMalformed,
    ToolCallProduced,
    Usage,
)

CRASH_MESSAGE = "The engine process ended unexpectedly (signal 9); send the message again to start a new one."


@dataclass(frozen=True)
class Say:
    """A piece of the answer (or of its reasoning), after a pause."""

    text: str
    is_reasoning: bool = False
    pause_s: float = 0.0


@dataclass(frozen=True)
class Call:
    """A well-formed tool call."""

    name: str
    arguments: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class BadCall:
    """A tool call that can't be parsed."""

    raw: str
    reason: str = "the arguments are not JSON"


@dataclass(frozen=True)
class Crash:
    """The engine process dies here."""


@dataclass(frozen=True)
class Hang:
    """Nothing more comes until the request is cancelled."""


@dataclass(frozen=True)
class Refuse:
    """The engine refuses the request before any work."""

    message: str = "The prompt has 9000 tokens but the context holds 8192; shorten it or raise --context."


@dataclass(frozen=True)
class End:
    """The answer ends for a reason other than the model's own end."""

    reason: FinishReason


Step = Say | Call | BadCall | Crash | Hang | Refuse | End
HELLO = (Say("Let me think.", is_reasoning=True), Say("Hello"), Say(" there.\n"))


class ScriptedEngine:
    """Plays `scripts`; `start_error` makes loading fail with that error, `load_s` makes it slow."""

    def __init__(
        self,
        *scripts: tuple[Step, ...],
        start_error: HotslotError | None = None,
        load_s: float = 0.0,
        context_limit_tokens: int = 8192,
    ) -> None:
        self.scripts: list[tuple[Step, ...]] = list(scripts) or [HELLO]
        self.start_error = start_error
        self.load_s = load_s
        self.context_limit_tokens = context_limit_tokens
        self.on_stats: StatsCallback | None = None
        self.requests: list[Generate] = []
        self.opening_requests: list[Generate] = []
        self.side_scripts: list[tuple[Step, ...]] = [()]
        self.side_requests: list[Generate] = []
        self.starts: list[EngineOptions] = []
        self.cancelled_ids: list[str] = []
        self._is_running = False
        self._cancels: dict[str, asyncio.Event] = {}

    @property
    def is_running(self) -> bool:
        return self._is_running

    async def start(self, options: EngineOptions, on_progress: ProgressCallback | None = None) -> Loaded:
        self._is_running = False
        self.starts.append(options)
        for done in (0, 50, 100):
            if on_progress is not None:
                on_progress(LoadProgressed("experts", done, 100))
            await asyncio.sleep(self.load_s / 3)
        if self.start_error is not None:
            raise self.start_error
        self._is_running = True
        stats = self.make_stats(options)
        sampling = SamplingOptions(temperature=0.5, top_k=20, top_p=0.95)
        return Loaded(
            "scripted", self.context_limit_tokens, stats.num_slots, stats, "scripted", True, True, sampling, 0.1
        )

    def make_stats(self, options: EngineOptions | None = None, num_tokens: int = 0) -> EngineStats:
        """Plausible figures after that many decoded tokens."""
        options = options or self.starts[-1]
        return EngineStats(
            model_name="scripted",
            decode_tok_s=42.0 if num_tokens else None,
            prefill_tok_s=500.0 if num_tokens else None,
            slot_hit_rate=0.9 if num_tokens else None,
            num_slots=192,
            num_slots_used=min(192, 4 * num_tokens),
            num_experts=384,
            vram_limit_bytes=options.vram_bytes or 64 << 20,
            vram_used_bytes=48 << 20,
            vram_headroom_bytes=(options.vram_bytes or 64 << 20) - (48 << 20),
            context_used_tokens=10 + num_tokens,
            context_limit_tokens=self.context_limit_tokens,
            policy=options.policy,
            overlap_requested=options.overlap,
            overlap_reason="the overlap path needs a CUDA device" if options.overlap else "switched off",
        )

    async def generate(self, request: Generate) -> AsyncGenerator[RequestEvent, None]:
        if not self._is_running:
            raise EngineError("No model is loaded; send a message to load one.")
        if request.kind == "opening":
            self.opening_requests.append(request)
            yield _Player(request, asyncio.Event())._finished()
            return
        is_side_call = request.kind == "side_call"
        (self.side_requests if is_side_call else self.requests).append(request)
        scripts = self.side_scripts if is_side_call else self.scripts
        steps = scripts.pop(0) if len(scripts) > 1 else scripts[0]
        cancel = self._cancels[request.request_id] = asyncio.Event()
        player = _Player(request, cancel)
        try:
            async for event in player.play(steps):
                yield event
                if isinstance(event, TextProduced) and self.on_stats is not None:
                    self.on_stats(self.make_stats(num_tokens=player.num_tokens))
        except _CrashError:
            self._is_running = False
            yield Failed(request.request_id, CRASH_MESSAGE)
        finally:
            del self._cancels[request.request_id]

    async def cancel(self, request_id: str) -> None:
        self.cancelled_ids.append(request_id)
        if request_id in self._cancels:
            self._cancels[request_id].set()

    def crash(self) -> None:
        """Die between two requests."""
        self._is_running = False

    async def count_tokens(self, request: CountTokens) -> int:
        return sum(len(message.content.split()) + 4 for message in request.messages)

    async def score(self, request: Score) -> Scored:
        ids = request.token_ids or tuple(range(len((request.text or "").split())))
        rest = len(ids) - 1
        return Scored(request.request_id, ids, (-1.0,) * rest, ids[1:], 1.0, 2.718281828, self.make_stats(), 0.1)

    async def stats(self) -> EngineStats:
        return self.make_stats()

    async def close(self) -> None:
        self._is_running = False


class _CrashError(Exception):
    pass


class _Player:
    """Turns the steps of one script into the events of one request."""

    def __init__(self, request: Generate, cancel: asyncio.Event) -> None:
        self.request_id = request.request_id
        self.num_prompt_tokens = sum(len(message.content.split()) + 4 for message in request.messages)
        self.num_tokens = 0
        self.texts = {"text": "", "reasoning": ""}
        self.calls: list[ToolCall] = []
        self.reason: FinishReason = "stop"
        self._cancel = cancel

    async def play(self, steps: tuple[Step, ...]) -> AsyncGenerator[RequestEvent, None]:
        if steps and isinstance(steps[0], Refuse):
            yield Failed(self.request_id, steps[0].message, "RequestError")
            return
        yield PromptAccepted(self.request_id, self.num_prompt_tokens, 0)
        yield PrefillProgressed(self.request_id, self.num_prompt_tokens, self.num_prompt_tokens)
        for step in steps:
            if await self._is_cancelled_within(step):
                yield self._cancelled()
                return
            event = self._play_step(step)
            if event is not None:
                yield event
        yield self._finished()

    async def _is_cancelled_within(self, step: Step) -> bool:
        pause_s = step.pause_s if isinstance(step, Say) else None if isinstance(step, Hang) else 0.0
        if pause_s == 0.0:
            await asyncio.sleep(0)
            return self._cancel.is_set()
        try:
            await asyncio.wait_for(self._cancel.wait(), pause_s)
        except TimeoutError:
            return False
        return True

    def _play_step(self, step: Step) -> RequestEvent | None:
        match step:
            case Say(text, is_reasoning):
                channel = "reasoning" if is_reasoning else "text"
                self.num_tokens += 1
                self.texts[channel] += text
                return TextProduced(self.request_id, channel, text)  # type: ignore[arg-type]
            case Call(name, arguments):
                self.calls.append(ToolCall(name, dict(arguments)))
                self.reason = "tool_calls"
                return ToolCallProduced(self.request_id, self.calls[-1])
            case BadCall(raw, reason):
                return ToolCallMalformed(self.request_id, raw, reason)
            case End(reason):
                self.reason = reason
            case Crash():
                raise _CrashError
        return None

    def _usage(self) -> Usage:
        return Usage(self.num_prompt_tokens, 0, self.num_tokens)

    def _stats(self) -> RequestStats:
        return RequestStats(0.1, 500.0, 42.0, EngineStats(model_name="scripted", decode_tok_s=42.0, slot_hit_rate=0.9))

    def _cancelled(self) -> Cancelled:
        ids = tuple(range(self.num_tokens))
        return Cancelled(
            self.request_id, self._usage(), self._stats(), ids, self.texts["text"], self.texts["reasoning"]
        )

    def _finished(self) -> Finished:
        ids = tuple(range(self.num_tokens + 1))
        return Finished(
            self.request_id,
            self.reason,
            self._usage(),
            self._stats(),
            ids,
            self.texts["text"],
            self.texts["reasoning"],
            tuple(self.calls),
        )
