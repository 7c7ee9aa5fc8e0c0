"""Wires the engine: commands in, steps, events out. Deciding is the scheduler's, running is `forward`'s.

Owns the set of accepted requests and the promise that each ends in exactly one last event.
"""

import logging
import time
from collections.abc import Callable
from functools import partial

import torch

from runtime.errors import EngineError, HotslotError, RequestError
from runtime.execute import flight
from runtime.execute.counting import TokenCounting
from runtime.execute.failures import failure, one_line
from runtime.execute.flight import Flight
from runtime.execute.load import LoadedModel, load_model
from runtime.execute.opened_model import OpenModel, open_folder
from runtime.execute.placement import Placement
from runtime.execute.work import Work
from runtime.layers.step import StepInterruptedError
from runtime.protocol import (
    Cancel,
    Command,
    CountTokens,
    Event,
    Failed,
    Generate,
    GetStats,
    LoadFailed,
    LoadModel,
    Request,
    Score,
    StartTrace,
    StatsReported,
    StopTrace,
)
from runtime.schedule.step_plan import StepPlan
from runtime.telemetry.process_memory import library_bytes, resident_bytes

_STATS_INTERVAL_S = 0.2
_logger = logging.getLogger("hotslot.engine")


class Engine:
    """One model and the requests it works on. `step` computes at most one chunk or one token of each.

    Where the device draws the tokens, a step launches the next decode step first and then handles the tokens of the
    last one, while the device is busy.

    `send` is called from a thread of its own, too, for tokens that are counted while something runs. Whoever hears of
    a Cancel before the step that runs has ended puts its request into `cancelled`: a long step is given up then.
    """

    def __init__(
        self,
        send: Callable[[Event], None],
        placement: Placement | None = None,
        open_model: OpenModel = open_folder,
        cancelled: set[str] | None = None,
    ) -> None:
        """`placement` overrides the device's own number formats and path, `open_model` what a model's path means."""
        self._send = send
        self._cancelled = set[str]() if cancelled is None else cancelled
        self._placement, self._open_model = placement, open_model
        self._base_bytes = resident_bytes(), library_bytes()
        self._model: LoadedModel | None = None
        self._work: dict[str, Work] = {}
        self._flight: Flight | None = None
        self._landed_s = 0.0
        self._said_reason = ""
        self._stats_sent_s = 0.0
        self._counting = TokenCounting(send)

    @property
    def is_loaded(self) -> bool:
        return self._model is not None

    @property
    def model(self) -> LoadedModel:
        """What is loaded. Raises EngineError where nothing is."""
        return self._loaded_model()

    @property
    def is_idle(self) -> bool:
        """No step is left to run, and nothing that is done while none runs."""
        if self._model is None:
            return True
        return self._flight is None and self._model.scheduler.is_idle and not self._model.warm_start.has_work

    def handle(self, command: Command) -> None:
        """Act on one command. Never raises: what goes wrong becomes the command's last event."""
        if isinstance(command, LoadModel):
            self._load(command)
        elif isinstance(command, Cancel):
            self._cancel(command.request_id)
        elif not isinstance(command, Request):
            _logger.error("ignored a %s", type(command).__name__)
        else:
            try:
                self._accept(command)
            except Exception as error:
                self._send(failure(command.request_id, "The request could not be read", error))

    def step(self) -> None:
        """Run one planned step, or without requests a little of what waits for that. Never raises."""
        model = self._model
        if model is None or self.is_idle:
            return
        if model.scheduler.is_idle and self._flight is None:
            model.warm_start.work()
        else:
            self._run_step(model)

    def close(self) -> None:
        """Keep what the next start needs. Requests that run get no more events."""
        if self._model is not None:
            self._model.warm_start.save_changes()

    # ---- commands

    def _load(self, command: LoadModel) -> None:
        try:
            if self._model is not None:
                raise EngineError("This engine has a model already; start another one.")
            self._model = load_model(command.options, self._base_bytes, self._send, self._placement, self._open_model)
        except HotslotError as error:
            self._send(LoadFailed(str(error), type(error).__name__))
        except Exception as error:
            _logger.exception("loading failed")
            self._send(LoadFailed(one_line(f"{command.options.model_path} could not be loaded", error)))
        else:
            self._send(self._model.loaded_event())

    def _accept(self, command: Request) -> None:
        model = self._loaded_model()
        if isinstance(command, GetStats):
            self._send(StatsReported(command.request_id, model.stats()))
        elif isinstance(command, CountTokens):
            self._counting.answer(model.admission, command, can_wait=model.scheduler.is_idle)
        elif isinstance(command, StartTrace):
            self._land(model)
            self._send(model.tracing.start(command))
        elif isinstance(command, StopTrace):
            self._land(model)
            self._send(model.tracing.stop(command))
        elif command.request_id in self._work:
            raise RequestError(f"Request {command.request_id} is running already.")
        else:
            self._submit(model, self._admit(model, command))

    @staticmethod
    def _admit(model: LoadedModel, command: Generate | Score) -> Work:
        now_s = time.monotonic()
        if isinstance(command, Generate):
            return model.admission.answer(command, now_s)
        return model.admission.scoring(command, now_s)

    def _submit(self, model: LoadedModel, work: Work) -> None:
        model.scheduler.free_id(work.sequence.sequence_id)
        try:
            model.scheduler.submit(work.sequence)
        except HotslotError:
            work.discard()
            raise
        self._work[work.sequence.sequence_id] = work

    def _loaded_model(self) -> LoadedModel:
        if self._model is None:
            raise EngineError("No model is loaded; load one first.")
        return self._model

    def _cancel(self, request_id: str) -> None:
        self._cancelled.discard(request_id)
        work = self._work.pop(request_id, None)
        if work is None:
            return
        model = self._loaded_model()
        model.scheduler.finish(request_id)
        self._send(work.cancelled(model.stats()))

    # ---- steps

    def _run_step(self, model: LoadedModel) -> None:
        plan: StepPlan | None = None
        try:
            can_fly = not self._reason_to_wait(model)
            if not can_fly or model.scheduler.may_admit:
                self._land(model)
            for sequence in model.scheduler.admit():
                self._send_all(self._work[sequence.sequence_id].started())
            plan = model.scheduler.plan()
            if plan is None or not plan.is_decode:
                self._land(model)
            if plan is not None and plan.is_decode and can_fly:
                self._launch(model, plan)
            elif plan is not None:
                self._compute(model, plan)
        except StepInterruptedError:
            assert plan is not None
            model.scheduler.undo(plan)
        except Exception as error:
            _logger.exception("a step failed")
            # What was in flight can't be read any more.
            plan, self._flight = None if self._flight is not None else plan, None
            self._abandon(model, plan, one_line("The engine could not compute this answer", error))

    def _reason_to_wait(self, model: LoadedModel) -> str:
        """Why no step is launched ahead now; said in the log when it changes."""
        reason = flight.reason_to_wait(model.forward, self._work.values(), model.options.steps_ahead)
        if reason and reason != self._said_reason:
            self._said_reason = reason
            _logger.info("decode steps run in turn: %s", reason)
        return reason

    def _compute(self, model: LoadedModel, plan: StepPlan) -> None:
        """Run a step and hand its logits to the requests."""
        started_s = time.monotonic()
        if not plan.is_decode:
            model.warm_start.fill_batch()
        ids = {segment.sequence_id for segment in plan.segments}
        logits = model.forward.run(plan, lambda: self._cancelled.isdisjoint(ids))
        model.scheduler.complete(plan)
        self._account(model, plan, self._take(model, plan, logits, started_s), started_s)

    def _launch(self, model: LoadedModel, plan: StepPlan) -> None:
        """Launch a decode step, then read the one before it."""
        answers = [self._work[segment.sequence_id] for segment in plan.segments]
        launched = flight.launch(model.forward, plan, answers, time.monotonic())
        model.scheduler.complete(plan)
        for answer in launched.answers:
            answer.expect()
        before, self._flight = self._flight, launched
        if before is not None:
            self._read(model, before)

    def _land(self, model: LoadedModel) -> None:
        """Read the step that is in flight, if one is."""
        landing, self._flight = self._flight, None
        if landing is not None:
            self._read(model, landing)

    def _read(self, model: LoadedModel, landing: Flight) -> None:
        """Wait for a launched step and hand its tokens to the answers that still want them."""
        drawn = landing.step.wait()
        num_wanted = 0
        counts_chats = not all(segment.is_side_call for segment in landing.plan.segments)
        for segment, answer, token in zip(landing.plan.segments, landing.answers, drawn, strict=True):
            if self._work.get(segment.sequence_id) is not answer:
                continue
            num_wanted += not (counts_chats and segment.is_side_call)
            self._hand_over(model, answer, partial(answer.learn, token, time.monotonic()))
        started_s, self._landed_s = max(landing.started_s, self._landed_s), time.monotonic()
        self._account(model, landing.plan, num_wanted, started_s)

    def _account(self, model: LoadedModel, plan: StepPlan, num_wanted: int, started_s: float) -> None:
        """A step, its events included, has ended."""
        now_s = time.monotonic()
        model.scheduler.note_duration(plan, now_s - started_s)
        model.meter.add(now_s, now_s - started_s, num_wanted, plan.is_decode, plan.holds_up_chat)
        self._report(model, now_s)
        model.warm_start.save_at_interval()

    def _take(self, model: LoadedModel, plan: StepPlan, logits: torch.Tensor, started_s: float) -> int:
        """Hand each segment's logits to its request; returns how many tokens some request still wanted.

        Where chats decode with side calls the chats' alone count, because a chat's speed is what a person watches.
        """
        row = num_wanted = 0
        counts_chats = plan.is_decode and not all(segment.is_side_call for segment in plan.segments)
        for segment in plan.segments:
            rows = logits[row : row + len(segment.logit_offsets)]
            row += len(rows)
            work = self._work.get(segment.sequence_id)
            if work is None:
                continue
            if not (counts_chats and segment.is_side_call):
                num_wanted += len(segment.token_ids)
            now_s = time.monotonic()
            self._hand_over(model, work, partial(work.take, segment, rows, now_s - started_s, now_s))
        return num_wanted

    def _hand_over(self, model: LoadedModel, work: Work, take: Callable[[], list[Event]]) -> None:
        """Send what a request makes of its part of a step; it may be over then, or fail."""
        try:
            self._send_all(take())
            if work.is_over:
                self._finish(model, work)
        except Exception as error:
            self._fail(model, work, failure(work.sequence.sequence_id, "This answer failed", error))

    def _finish(self, model: LoadedModel, work: Work) -> None:
        event = work.finished(model.stats())
        del self._work[work.sequence.sequence_id]
        model.scheduler.finish(work.sequence.sequence_id)
        self._send(event)

    def _fail(self, model: LoadedModel, work: Work, failed: Failed) -> None:
        """What was computed is sound, but the request can't go on."""
        del self._work[failed.request_id]
        model.scheduler.drop(failed.request_id)
        work.discard()
        self._send(failed)

    def _report(self, model: LoadedModel, now_s: float) -> None:
        if now_s - self._stats_sent_s >= _STATS_INTERVAL_S and self._work:
            self._stats_sent_s = now_s
            self._send(StatsReported("", model.stats()))

    def _abandon(self, model: LoadedModel, plan: StepPlan | None, message: str) -> None:
        """A step failed midway: end every request that had a part in it, go on with the others and clean caches."""
        for request_id in model.scheduler.abandon(plan):
            work = self._work.pop(request_id, None)
            if work is not None:
                work.discard()
                self._send(Failed(request_id, message))
        model.reset_after_failure()

    def _send_all(self, events: list[Event]) -> None:
        for event in events:
            self._send(event)
