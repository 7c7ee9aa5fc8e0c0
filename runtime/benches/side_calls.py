"""What a chat keeps of its speed while side calls run beside it, in the engine itself at a published geometry.

`python -m runtime.benches.side_calls`. Scheduler, sequences, graphs, slots, overlap and sampler are the engine's; the
weights are random, and each sequence is routed by a trace of its own (see `reuse_routing`). The chat streams alone,
then beside side calls that are started anew as they end, then alone again. Prints one JSON object.

`share_of_step_time` is the time that the chat's tokens did not need: 1 - tokens x mean step alone / all step time.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import psutil
import torch

from runtime.benches.measures import describe_device, percentile
from runtime.benches.random_model import RandomModel, random_spec
from runtime.benches.reuse_routing import ReuseRouting, reuse_exponent, reuse_trace, routed_decoder
from runtime.benches.synthetic import FLAGSHIP, TINY
from runtime.execute.engine import Engine
from runtime.memory.sizes import experts_bytes
from runtime.options import EngineOptions, PolicyName, SamplingOptions
from runtime.protocol import (
    Cancel,
    Cancelled,
    ChatMessage,
    Event,
    Failed,
    Finished,
    Generate,
    LoadFailed,
    LoadModel,
    RequestKind,
    TextProduced,
)
from runtime.schedule.step_plan import StepPlan
from runtime.spec import ModelSpec

_STATE_ROWS = 64
"""More than an engine has."""
_SAMPLING = SamplingOptions(temperature=1.0, top_k=20, top_p=0.95)
"""What the flagship's card recommends."""
_VRAM_BYTES = 1 << 40
"""No limit: the slots are given."""


@dataclass(frozen=True)
class Settings:
    """What is measured; see `parse`."""

    layers: int
    slots: int
    hit_rate: float
    banks: int | None
    seconds: float
    seconds_alone: float
    side_calls: int
    prompt_tokens: int
    answer_tokens: int
    share: float
    chunk_tokens: int
    context: int
    policy: PolicyName
    overlap: bool
    trace_tokens: int
    is_tiny: bool


def parse(arguments: list[str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(prog="side_calls", description=__doc__, allow_abbrev=False)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--slots", type=int, default=1650)
    parser.add_argument("--hit-rate", type=float, default=0.57, help="of the chat alone, if each layer had its part")
    parser.add_argument("--banks", type=int, help="host banks; fewer than layers are shared. Default: what fits")
    parser.add_argument("--seconds", type=float, default=60.0, help="beside side calls")
    parser.add_argument("--seconds-alone", type=float, default=10.0, help="before, and once more after")
    parser.add_argument("--side-calls", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=300, help="of a side call, and of the chat")
    parser.add_argument("--answer-tokens", type=int, default=60, help="of a side call")
    parser.add_argument("--share", type=float, default=0.3, help="of step time that side calls may take")
    parser.add_argument("--chunk-tokens", type=int, default=EngineOptions.chunk_tokens)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--policy", choices=("lru", "rule"), default="rule")
    parser.add_argument("--no-overlap", action="store_true")
    parser.add_argument("--trace-tokens", type=int, default=4096, help="length of the routing trace, which repeats")
    parser.add_argument("--tiny", action="store_true", help="a tiny geometry, to see the bench run")
    found = parser.parse_args(arguments)
    if not found.tiny and not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU that torch can use; --tiny runs the bench on a CPU, see `hotslot doctor`.")
    return Settings(
        found.layers, found.slots, found.hit_rate, found.banks, found.seconds, found.seconds_alone, found.side_calls,
        found.prompt_tokens, found.answer_tokens, found.share, found.chunk_tokens, found.context, found.policy,
        not found.no_overlap, found.trace_tokens, found.tiny,
    )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One step of the engine; `ended_s` on a monotonic clock."""

    ended_s: float
    seconds: float
    num_chat_rows: int
    num_side_rows: int
    num_tokens: int
    is_decode: bool
    shown_share: float | None
    """Side calls' share of the last seconds, as the status bar shows it."""


@dataclass
class Answer:
    """Times on a monotonic clock; `pieces` are those at which text came."""

    sent_s: float
    pieces: list[float] = field(default_factory=list)
    ended_s: float = 0.0


@dataclass(frozen=True)
class Phase:
    """What one stretch of time saw. Steps are those between the chat's first and last piece."""

    chats: list[Answer]
    side_calls: list[Answer]
    steps: list[Step]
    num_routed: int
    num_missed: int

    @property
    def num_chat_tokens(self) -> int:
        return sum(step.num_chat_rows for step in self.steps if step.is_decode)

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)

    @property
    def decode_seconds(self) -> float:
        return sum(step.seconds for step in self.steps if step.is_decode)

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for chat in self.chats for earlier, later in pairwise(chat.pieces)]

    @property
    def most_chunks_between_tokens(self) -> int:
        """Side calls' chunks that one token of the chat waited for."""
        runs = groupby(self.steps, lambda step: step.is_decode and step.num_chat_rows > 0)
        return max((sum(not step.is_decode for step in steps) for is_token, steps in runs if not is_token), default=0)


class Users:
    """A chat that never ends and side calls, on an engine that is stepped from here."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.engine = Engine(self._take, open_model=_model(settings).opened())
        self._answers: dict[str, Answer] = {}
        self._side_calls: list[Answer] = []
        self._steps: list[Step] = []
        self._num_sent = 0

    def load(self) -> None:
        settings = self._settings
        device = "cuda" if torch.cuda.is_available() else "cpu"
        options = EngineOptions(
            Path("random weights"),
            device=device,  # type: ignore[arg-type]
            policy=settings.policy,
            overlap=settings.overlap,
            vram_bytes=_VRAM_BYTES if device == "cuda" else None,
            num_slots=settings.slots,
            context_tokens=min(settings.context, _spec(settings).max_context_tokens),
            chunk_tokens=settings.chunk_tokens,
            side_call_share=settings.share,
        )
        self.engine.handle(LoadModel(options))
        scheduler = self.engine.model.scheduler
        note = scheduler.note_duration

        def noted(plan: StepPlan, seconds: float) -> None:
            note(plan, seconds)
            self._steps.append(_step(plan, seconds, scheduler.side_call_time_share))

        # The only place where a step's plan and its duration meet.
        scheduler.note_duration = noted  # type: ignore[method-assign]

    def run(self, seconds: float, num_side_calls: int) -> Phase:
        """A new chat, and so many side calls at all times, for so long; all cancelled at the end."""
        self._answers, self._side_calls, self._steps = {}, [], []
        before = self.engine.model.stats()
        chats: list[Answer] = []
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            running = set(self._answers)
            if not any(name.startswith("chat") for name in running):
                chats.append(self._send("chat", None))
            for _ in range(num_side_calls - sum(name.startswith("side") for name in running)):
                self._send("side_call", self._settings.answer_tokens)
            self.engine.step()
        after = self.engine.model.stats()
        for name in list(self._answers):
            self.engine.handle(Cancel(name))
        while not self.engine.is_idle:
            self.engine.step()
        spans = [(chat.pieces[0], chat.pieces[-1]) for chat in chats if chat.pieces]
        steps = [step for step in self._steps if any(begin < step.ended_s <= end for begin, end in spans)]
        num_routed, num_missed = after.num_routed - before.num_routed, after.num_missed - before.num_missed
        return Phase(chats, self._side_calls, steps, num_routed, num_missed)

    def chunk_seconds(self) -> float:
        """How long a chunk of the largest size takes by itself: what one step of the chat may have to wait for."""
        self._answers, self._steps = {}, []
        self._send("chat", 1, self._settings.chunk_tokens)
        while not self.engine.is_idle:
            self.engine.step()
        return max(step.seconds for step in self._steps)

    def _send(self, kind: RequestKind, max_tokens: int | None, num_tokens: int | None = None) -> Answer:
        # A number first, so that no cached prefix helps.
        self._num_sent += 1
        text = f"{self._num_sent} ".ljust((num_tokens or self._settings.prompt_tokens) - 1, "x")
        sampling = SamplingOptions(
            _SAMPLING.temperature, _SAMPLING.top_k, _SAMPLING.top_p, seed=self._num_sent, max_tokens=max_tokens
        )
        name = f"{kind}{self._num_sent}"
        answer = self._answers[name] = Answer(time.monotonic())
        self.engine.handle(Generate(name, (ChatMessage("user", text),), sampling, kind=kind))
        return answer

    def _take(self, event: Event) -> None:
        if isinstance(event, LoadFailed | Failed):
            raise SystemExit(f"the engine failed: {event.message}")
        if isinstance(event, TextProduced):
            self._answers[event.request_id].pieces.append(time.monotonic())
        elif isinstance(event, Finished | Cancelled):
            answer = self._answers.pop(event.request_id)
            answer.ended_s = time.monotonic()
            if isinstance(event, Finished) and event.request_id.startswith("side"):
                self._side_calls.append(answer)


def _step(plan: StepPlan, seconds: float, shown_share: float | None) -> Step:
    num_side_rows = sum(segment.is_side_call for segment in plan.segments)
    num_chat_rows = len(plan.segments) - num_side_rows
    return Step(
        time.monotonic(), seconds, num_chat_rows, num_side_rows, plan.num_tokens, plan.is_decode, shown_share
    )  # fmt: skip


def _spec(settings: Settings) -> ModelSpec:
    return random_spec(TINY if settings.is_tiny else FLAGSHIP, settings.layers)


def _num_banks(settings: Settings, spec: ModelSpec) -> int:
    fitting = int(0.6 * psutil.virtual_memory().available) // (experts_bytes(spec) // spec.num_layers)
    return max(1, min(settings.banks or spec.num_layers, spec.num_layers, fitting))


def _model(settings: Settings) -> RandomModel:
    spec = _spec(settings)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    moe, slots_per_layer = spec.moe, settings.slots / spec.num_layers
    exponent = reuse_exponent(moe.num_experts, moe.num_experts_per_token, slots_per_layer, settings.hit_rate)
    _say(f"drawing a trace of {settings.trace_tokens} tokens, reuse falls as distance ** -{exponent:.2f}")
    routing = ReuseRouting(reuse_trace(spec, settings.trace_tokens, exponent), _STATE_ROWS, device)
    return RandomModel(spec, device, _num_banks(settings, spec), routed_decoder(routing))


def figures(alone: list[Phase], beside: Phase, share: float) -> dict[str, Any]:
    """Rates, ratios, gaps, latencies."""
    step_alone_s = sum(phase.decode_seconds for phase in alone) / sum(phase.num_chat_tokens for phase in alone)
    latencies = [answer.ended_s - answer.sent_s for answer in beside.side_calls]
    chunks = [step for step in beside.steps if not step.is_decode]
    # Looked at after a chunk, the last seconds would be those of the chunk.
    shown = [
        (step.shown_share, step.seconds) for step in beside.steps if step.is_decode and step.shown_share is not None
    ]
    num_tokens = beside.num_chat_tokens
    return {
        "chat_alone_tok_s": [_rounded(phase.num_chat_tokens / phase.decode_seconds) for phase in alone],
        "chat_beside_tok_s": _rounded(num_tokens / beside.seconds),
        "ratio": _rounded(num_tokens * step_alone_s / beside.seconds),
        "ratio_outside_prefill": _rounded(num_tokens * step_alone_s / beside.decode_seconds),
        "share_wanted": share,
        "share_of_step_time": _rounded(1 - num_tokens * step_alone_s / beside.seconds),
        "share_shown": _rounded(_weighted(shown)) if shown else None,
        "worst_gap_ms": _rounded(1e3 * max(beside.gaps_s)),
        "median_gap_ms": _rounded(1e3 * statistics.median(beside.gaps_s)),
        "worst_gap_alone_ms": _rounded(1e3 * max(gap for phase in alone for gap in phase.gaps_s)),
        "most_chunks_between_tokens": beside.most_chunks_between_tokens,
        "longest_chunk_ms": _rounded(1e3 * max((step.seconds for step in chunks), default=0.0)),
        "side_calls_ended": len(latencies),
        "side_call_latency_s_median": _rounded(statistics.median(latencies)) if latencies else None,
        "side_call_latency_s_worst": _rounded(max(latencies)) if latencies else None,
        "hit_rate_alone": [_rounded(1 - phase.num_missed / phase.num_routed) for phase in alone],
        "hit_rate_beside": _rounded(1 - beside.num_missed / beside.num_routed),
        "decode_ms_by_rows": _decode_ms(beside.steps),
        "chunk_ms_by_tokens": _chunk_ms(chunks),
    }


def _decode_ms(steps: Iterable[Step]) -> dict[str, dict[str, float]]:
    """Of decode steps by chat rows + side rows."""
    by_rows: dict[str, list[float]] = {}
    for step in steps:
        if step.is_decode:
            by_rows.setdefault(f"{step.num_chat_rows}+{step.num_side_rows}", []).append(1e3 * step.seconds)
    return {rows: {"steps": len(times), **_spread(times)} for rows, times in sorted(by_rows.items())}


def _chunk_ms(chunks: Iterable[Step]) -> dict[str, dict[str, float]]:
    by_tokens: dict[int, list[float]] = {}
    for step in chunks:
        by_tokens.setdefault(step.num_tokens, []).append(1e3 * step.seconds)
    return {str(size): {"chunks": len(times), **_spread(times)} for size, times in sorted(by_tokens.items())}


def _spread(times: list[float]) -> dict[str, float]:
    return {"median": _rounded(statistics.median(times)), "p95": _rounded(percentile(times, 0.95))}


def _weighted(pairs: list[tuple[float, float]]) -> float:
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)


def _rounded(value: float) -> float:
    return round(value, 3)


def run(settings: Settings) -> dict[str, Any]:
    """All figures of one engine."""
    started_s = time.monotonic()
    users = Users(settings)
    users.load()
    model = users.engine.model
    _say(f"loaded in {time.monotonic() - started_s:.1f} s, overlap {model.overlap.level}; warming up")
    # Kernels of every number of rows and of chunks are compiled by then.
    users.run(min(3.0, settings.seconds_alone), settings.side_calls)
    users.run(min(1.0, settings.seconds_alone), 0)
    set_up_s = time.monotonic() - started_s
    _say(f"set up in {set_up_s:.1f} s; measuring")
    alone = [users.run(settings.seconds_alone, 0)]
    beside = users.run(settings.seconds, settings.side_calls)
    alone.append(users.run(settings.seconds_alone, 0))
    spec = model.spec
    return {
        "device": describe_device(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
        "layers": spec.num_layers, "experts": spec.moe.num_experts, "slots": settings.slots,
        "host_banks": _num_banks(settings, spec), "policy": settings.policy, "overlap": model.overlap.level,
        "hit_rate_wanted": settings.hit_rate, "chunk_tokens": settings.chunk_tokens,
        "side_calls": settings.side_calls, "prompt_tokens": settings.prompt_tokens,
        "answer_tokens": settings.answer_tokens, "set_up_s": _rounded(set_up_s), "seconds": settings.seconds,
        **figures(alone, beside, settings.share),
        "whole_chunk_ms": _rounded(1e3 * users.chunk_seconds()),
    }  # fmt: skip


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    print(json.dumps(run(parse()), indent=1))


if __name__ == "__main__":
    main()
