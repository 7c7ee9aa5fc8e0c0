"""A decode step that was launched and not read yet."""

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.execute.answer import Answer
from runtime.execute.device_draws import LaunchedStep
from runtime.execute.forward import Forward
from runtime.execute.work import Work
from runtime.schedule.step_plan import StepPlan


@dataclass(frozen=True)
class Flight:
    """`answers` are those of the plan's segments. One that is over by now does not want its token."""

    plan: StepPlan
    answers: tuple[Answer, ...]
    step: LaunchedStep
    started_s: float


def reason_to_wait(forward: Forward, works: Iterable[Work], is_wanted: bool) -> str:
    """Why the next decode step may not be launched before the last one is read; empty where it may."""
    if not is_wanted:
        return "steps one ahead are switched off"
    if forward.reason_to_wait:
        return forward.reason_to_wait
    return "" if all(isinstance(work, Answer) for work in works) else "a text is scored, whose logits the host reads"


def launch(forward: Forward, plan: StepPlan, answers: Iterable[Work], now_s: float) -> Flight:
    """Launch a planned decode step of these answers. Its tokens are to be expected then."""
    drawn = tuple(answer for answer in answers if isinstance(answer, Answer))
    assert len(drawn) == len(plan.segments), "a row of a decode step belongs to no answer"
    return Flight(plan, drawn, forward.launch(plan, [answer.next_draw() for answer in drawn]), now_s)
