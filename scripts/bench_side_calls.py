"""What a chat keeps of its speed while side calls run beside it, through the real engine process. Prints JSON.

The chat streams alone, then with side calls that are started anew as they end, then alone again; the ratios are to the
mean of both times alone, because a shared machine's speed drifts. A gap is the time between two pieces of one answer.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

# The repository's own packages, wherever the script is started from.
from runtime.client import EngineClient  # noqa: E402
from runtime.options import EngineOptions, SamplingOptions  # noqa: E402
from runtime.protocol import (  # noqa: E402
    Cancelled,
    ChatMessage,
    CountTokens,
    EngineStats,
    Finished,
    Generate,
    RequestKind,
    TextProduced,
)

CHAT = "Tell me a long story about a harbour, a boat, an old man and the sea."
SENTENCE = "The harbour was quiet that morning and the boats rocked gently against the stone wall of the old town. "
Span = tuple[float, float]


@dataclass
class Answer:
    """Seconds of a monotonic clock; `pieces` are the times at which text came."""

    sent_s: float
    pieces: list[float] = field(default_factory=list)
    ended_s: float = 0.0
    num_tokens: int = 0

    @property
    def decode_span(self) -> Span:
        return (self.pieces[0], self.pieces[-1]) if self.pieces else (self.ended_s, self.ended_s)


class Stream:
    """Requests of one kind one after the other, on a thread of its own, until the time is over."""

    def __init__(self, client: EngineClient, name: str, kind: RequestKind, text: str, num_tokens: int) -> None:
        self._client, self._name, self._kind, self._text = client, name, kind, text
        self._num_tokens = num_tokens
        self.answers: list[Answer] = []
        self.failure: BaseException | None = None

    def start(self, until_s: float) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(until_s,), name=self._name)
        thread.start()
        return thread

    def _run(self, until_s: float) -> None:
        try:
            while time.monotonic() < until_s:
                self.answers.append(self._ask(len(self.answers), until_s))
        except BaseException as error:
            self.failure = error

    def _ask(self, number: int, until_s: float) -> Answer:
        # Hot, so that the answer runs on rather than stopping early; a number first, so that no cached prefix helps.
        sampling = SamplingOptions(temperature=3.0, seed=number, max_tokens=self._num_tokens)
        messages = (ChatMessage("user", f"{self._name} {number}. {self._text}"),)
        request = Generate(f"{self._name}-{number}", messages, sampling, thinking=False, kind=self._kind)
        answer = Answer(time.monotonic())
        for event in self._client.generate(request):
            if isinstance(event, TextProduced):
                answer.pieces.append(time.monotonic())
                if self._kind == "chat" and answer.pieces[-1] >= until_s:
                    self._client.cancel(request.request_id)
            last = event
        answer.ended_s = time.monotonic()
        if not isinstance(last, Finished | Cancelled):
            raise SystemExit(f"the engine gave no answer: {last}")
        answer.num_tokens = last.usage.completion_tokens
        return answer


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=REPO / "assets" / "demo-model")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=60.0, help="beside side calls; alone a quarter of it, twice")
    parser.add_argument("--side-calls", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=300, help="of a side call")
    parser.add_argument("--answer-tokens", type=int, default=60, help="of a side call")
    parser.add_argument("--share", type=float, default=0.3, help="of step time that side calls may take")
    parser.add_argument("--slots", type=int)
    print(json.dumps(run(parser.parse_args()), indent=2))


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures of one engine start."""
    options = EngineOptions(
        arguments.model, device=arguments.device, num_slots=arguments.slots, side_call_share=arguments.share
    )
    shares: list[float] = []

    def note(stats: EngineStats) -> None:
        if stats.side_call_time_share is not None and stats.num_running > 1:
            shares.append(stats.side_call_time_share)

    load_before = os.getloadavg()[0]
    with EngineClient(options, on_stats=note) as client:
        client.load()
        side_text = text_of(client, arguments.prompt_tokens)
        alone = [stream_for(client, "before", arguments.seconds / 4)]
        side_calls = [
            Stream(client, f"side{number}", "side_call", side_text, arguments.answer_tokens)
            for number in range(arguments.side_calls)
        ]
        beside = stream_for(client, "beside", arguments.seconds, side_calls)
        alone.append(stream_for(client, "after", arguments.seconds / 4))
    return {
        "load_average": [round(load_before, 2), round(os.getloadavg()[0], 2)],
        **figures(alone, beside, [call.answers for call in side_calls]),
        "side_call_share_of_step_time": round(statistics.mean(shares), 3) if shares else None,
    }


def stream_for(client: EngineClient, name: str, seconds: float, beside: list[Stream] | None = None) -> list[Answer]:
    """Chat answers of so many seconds, with side calls beside them."""
    until_s = time.monotonic() + seconds
    streams = [Stream(client, name, "chat", CHAT, 1000), *(beside or [])]
    for thread in [stream.start(until_s) for stream in streams]:
        thread.join()
    failure = next((stream.failure for stream in streams if stream.failure is not None), None)
    if failure is not None:
        raise failure
    return streams[0].answers


def figures(alone: list[list[Answer]], beside: list[Answer], side_calls: list[list[Answer]]) -> dict[str, Any]:
    """Rates, ratios, gaps and latencies."""
    alone_tok_s = statistics.mean(rate(answers, (answers[0].sent_s, answers[-1].ended_s)) for answers in alone)
    whole = (beside[0].sent_s, beside[-1].ended_s)
    spans = overlaps([[answer.decode_span for answer in answers] for answers in [beside, *side_calls]])
    spans_s = sum(end - start for start, end in spans)
    num_in_spans = sum(
        answer.num_tokens / len(answer.pieces)
        for answer in beside
        for piece in answer.pieces
        for start, end in spans
        if start < piece <= end
    )
    gaps = gaps_of(beside)
    ended = [answer for answers in side_calls for answer in answers]
    latencies = sorted(answer.ended_s - answer.sent_s for answer in ended)
    return {
        "chat_alone_tok_s": round(alone_tok_s, 1),
        "chat_alone_tok_s_before_and_after": [
            round(rate(answers, (answers[0].sent_s, answers[-1].ended_s)), 1) for answers in alone
        ],
        "chat_beside_tok_s": round(rate(beside, whole), 1),
        "ratio": round(rate(beside, whole) / alone_tok_s, 3),
        "ratio_while_all_decode": round(num_in_spans / spans_s / alone_tok_s, 3) if spans_s else None,
        "seconds_while_all_decode": round(spans_s, 1),
        "worst_gap_ms": round(1000 * gaps[-1]),
        "p99_gap_ms": round(1000 * gaps[int(0.99 * len(gaps))]),
        "median_gap_ms": round(1000 * statistics.median(gaps)),
        "worst_gap_alone_ms": round(1000 * max(gaps_of(answers)[-1] for answers in alone)),
        "side_calls_ended": len(ended),
        "side_call_answer_tokens_mean": round(statistics.mean(answer.num_tokens for answer in ended), 1),
        "side_call_latency_s_median": round(statistics.median(latencies), 2),
        "side_call_latency_s_worst": round(latencies[-1], 2),
    }


def gaps_of(answers: list[Answer]) -> list[float]:
    """Seconds between pieces of the same answer, ascending."""
    return sorted(later - earlier for answer in answers for earlier, later in pairwise(answer.pieces))


def rate(answers: list[Answer], span: Span) -> float:
    """Tokens per second."""
    return sum(answer.num_tokens for answer in answers) / (span[1] - span[0])


def overlaps(lines: list[list[Span]]) -> list[Span]:
    """Spans of time that lie in one of every line's spans."""
    common = lines[0]
    for line in lines[1:]:
        pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in common for b in line)
        common = [(start, end) for start, end in pairs if start < end]
    return common


def text_of(client: EngineClient, num_tokens: int) -> str:
    """A message whose prompt has about so many tokens."""
    words = (SENTENCE * (num_tokens // len(SENTENCE.split()) + 1)).split()
    while len(words) > 1:
        text = " ".join(words)
        counted = client.count_tokens(CountTokens("count", (ChatMessage("user", f"side0 0. {text}"),), thinking=False))
        if counted <= num_tokens:
            return text
        words.pop()
    return words[0]


if __name__ == "__main__":
    main()
