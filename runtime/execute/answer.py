"""One answer being generated: draws its tokens, harvests their text, knows why it ends. Owns the request's timing."""

import torch

from runtime.execute.harvest import Harvest
from runtime.execute.sampler import DrawnToken, Draws, RowDraw, sample
from runtime.kernels.torch_ops.sampler import pack_options
from runtime.options import SamplingOptions
from runtime.protocol import (
    Cancelled,
    EngineStats,
    Event,
    Finished,
    FinishReason,
    PrefillProgressed,
    PromptAccepted,
    RequestStats,
    Usage,
)
from runtime.schedule.request import Sequence
from runtime.schedule.step_plan import PlannedSegment
from runtime.telemetry.stopwatch import RequestTiming


class Answer:
    """Implements `Work` for `Generate`."""

    def __init__(
        self,
        sequence: Sequence,
        sampling: SamplingOptions,
        harvest: Harvest,
        max_new_tokens: int,
        accepted_s: float,
    ) -> None:
        self.sequence = sequence
        self._sampling = sampling
        self._harvest = harvest
        self._max_new_tokens = max_new_tokens
        self._timing = RequestTiming(accepted_s)
        self._draws = Draws.of(sampling.seed)
        self._seen_ids: set[int] = set()
        self._logprobs: list[float] = []
        self._choice = pack_options([sampling])[0]
        self._has_penalties = sampling.presence_penalty != 0.0 or sampling.repetition_penalty != 1.0

    @property
    def is_over(self) -> bool:
        num_known = len(self.sequence.generated_ids) - self.sequence.num_expected
        return self._harvest.is_stopped or num_known >= self._max_new_tokens

    def started(self) -> list[Event]:
        """The prompt's size and how much of it was cached."""
        return [PromptAccepted(self.sequence.sequence_id, len(self.sequence.prompt_ids), self.sequence.num_cached)]

    def take(self, segment: PlannedSegment, logits: torch.Tensor, step_s: float, now_s: float) -> list[Event]:
        """Prefill progress, or the events of one sampled token."""
        events: list[Event] = []
        num_prompt = len(self.sequence.prompt_ids)
        if segment.start < num_prompt:
            self._timing.prefilled(now_s - step_s, len(segment.token_ids))
            # One that was paused reads its answer so far again, behind the prompt.
            events.append(PrefillProgressed(self.sequence.sequence_id, min(segment.end, num_prompt), num_prompt))
        if segment.logit_offsets:
            events.extend(self._draw(logits, now_s))
        return events

    def _draw(self, logits: torch.Tensor, now_s: float) -> list[Event]:
        number = self._draws.number(len(self.sequence.generated_ids))
        sampled = sample(logits, [self._sampling], [self._seen_ids], [number])
        self.sequence.expect()
        return self.learn(DrawnToken(int(sampled.ids[0]), float(sampled.logprobs[0])), now_s)

    def next_draw(self) -> RowDraw:
        """How a step that is launched now draws the next token; `expect` it then."""
        number = self._draws.number(len(self.sequence.generated_ids))
        return RowDraw(self._choice, number, self._seen_ids if self._has_penalties else ())

    def expect(self) -> None:
        """A step was launched that draws the next token."""
        self.sequence.expect()

    def learn(self, token: DrawnToken, now_s: float) -> list[Event]:
        """Events of the token that was expected. If it ends the answer, no further one is."""
        self.sequence.learn(token.token_id)
        self._seen_ids.add(token.token_id)
        self._logprobs.append(token.logprob)
        self._timing.generated(now_s)
        events: list[Event] = list(self._harvest.push(token.token_id))
        if self.is_over:
            self.sequence.forget_expected()
            if not self._harvest.is_stopped:
                events.extend(self._harvest.finish())
        return events

    def finished(self, stats: EngineStats) -> Finished:
        """The whole answer."""
        return Finished(
            self.sequence.sequence_id,
            self._finish_reason(),
            self._usage(),
            self._request_stats(stats),
            tuple(self.sequence.generated_ids),
            self._harvest.text,
            self._harvest.reasoning,
            self._harvest.tool_calls,
            self._harvest.stopped_by,
            tuple(self._logprobs),
        )

    def cancelled(self, stats: EngineStats) -> Cancelled:
        """What had been produced."""
        return Cancelled(
            self.sequence.sequence_id,
            self._usage(),
            self._request_stats(stats),
            tuple(self.sequence.generated_ids),
            self._harvest.text,
            self._harvest.reasoning,
        )

    def discard(self) -> None:
        """Nothing lies outside this object."""

    def _finish_reason(self) -> FinishReason:
        if self._harvest.tool_calls:
            return "tool_calls"
        return "stop" if self._harvest.is_stopped else "length"

    def _usage(self) -> Usage:
        return Usage(len(self.sequence.prompt_ids), self.sequence.num_cached, len(self.sequence.generated_ids))

    def _request_stats(self, stats: EngineStats) -> RequestStats:
        return RequestStats(self._timing.ttft_s, self._timing.prefill_tok_s, self._timing.decode_tok_s, stats)
