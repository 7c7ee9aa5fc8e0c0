"""Several sequences in one engine, on any device: what they are asked, and what random users do with it."""

import random

import pytest

from runtime.options import SamplingOptions
from runtime.protocol import (
    Cancel,
    Cancelled,
    ChatMessage,
    Failed,
    Finished,
    Generate,
    RequestKind,
    Score,
    Scored,
)
from runtime.schedule.step_plan import StepPlan
from runtime.schedule.time_share import TimeShare
from tests.support.engine_driver import EngineDriver

PROMPTS = (
    "Tell me a long story about a boat.",
    " ".join(f"word{number}" for number in range(12)),
    "Write a poem about the sea.",
    " ".join(f"item {number}" for number in range(30)),
)


def generate(name: str, prompt: str, kind: RequestKind = "chat", max_tokens: int = 16, **sampling: float) -> Generate:
    options = SamplingOptions(max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    return Generate(name, (ChatMessage("user", prompt),), options, thinking=False, kind=kind)


def forget(driver: EngineDriver) -> None:
    model = driver.engine._model
    assert model is not None
    model.scheduler._cache.forget_saved()


def finished(driver: EngineDriver, name: str) -> Finished:
    last = driver.events_of(name)[-1]
    assert isinstance(last, Finished), last
    return last


def most_rows(driver: EngineDriver) -> int:
    """Settle; the most rows that a decode step had."""
    return max(len(plan.segments) for plan in settled_plans(driver) if plan.is_decode)


def settled_plans(driver: EngineDriver) -> list[StepPlan]:
    """Settle; the steps that ran."""
    with pytest.MonkeyPatch.context() as patch:
        plans = recorded_plans(driver, patch)
        driver.settle()
    return plans


def recorded_plans(driver: EngineDriver, patch: pytest.MonkeyPatch) -> list[StepPlan]:
    """Grows with every step from now on."""
    scheduler = driver.engine.model.scheduler
    make_plan, plans = scheduler.plan, []

    def recording() -> StepPlan | None:
        plan = make_plan()
        if plan is not None:
            plans.append(plan)
        return plan

    patch.setattr(scheduler, "plan", recording)
    return plans


class Users:
    """Random operations on an engine, and what was said so far."""

    def __init__(self, driver: EngineDriver, seed: int) -> None:
        self.driver = driver
        self.rng = random.Random(seed)
        self.open: dict[str, tuple[ChatMessage, ...]] = {}
        self.histories: list[tuple[ChatMessage, ...]] = [()]
        self.num_accepted = self.num_ended = 0

    def operate(self, number: int) -> None:
        operation = self.rng.choice((self.start, self.start, self.edit, self.fork, self.score, self.cancel))
        operation(f"r{number}")
        self.driver.step(self.rng.randrange(4))
        self.collect()

    def start(self, name: str, history: tuple[ChatMessage, ...] = ()) -> None:
        if len(self.open) > 7:
            return
        message = ChatMessage(
            "user", " ".join(self.rng.choice(("sea", "boat", "42")) for _ in range(self.rng.randint(1, 40)))
        )
        sampling = SamplingOptions(
            temperature=self.rng.choice((0.0, 1.5)), seed=1, max_tokens=self.rng.choice((1, 4, 20, None))
        )
        kind: RequestKind = self.rng.choice(("chat", "side_call"))
        self.send(Generate(name, (*history, message), sampling, thinking=self.rng.random() < 0.5, kind=kind))
        self.open[name] = (*history, message)

    def edit(self, name: str) -> None:
        history = self.rng.choice(self.histories)
        self.start(name, history[: 2 * self.rng.randint(0, len(history) // 2)])

    def fork(self, name: str) -> None:
        self.start(name, self.rng.choice(self.histories))

    def score(self, name: str) -> None:
        if len(self.open) <= 7:
            self.send(Score(name, tuple(self.rng.randrange(400) for _ in range(self.rng.randint(1, 100)))))
            self.open[name] = ()

    def send(self, command: Generate | Score) -> None:
        self.driver.send(command)
        self.num_accepted += 1

    def cancel(self, _: str) -> None:
        if self.open:
            self.driver.send(Cancel(self.rng.choice(sorted(self.open))))

    def collect(self) -> None:
        """Requests that ended: exactly once, with nothing after it."""
        for name in list(self.open):
            events = self.driver.events_of(name)
            last = [event for event in events if isinstance(event, Finished | Cancelled | Failed | Scored)]
            if not last:
                continue
            assert len(last) == 1
            assert events[-1] is last[0]
            messages = self.open.pop(name)
            self.num_ended += 1
            if isinstance(last[0], Finished) and len(messages) < 5:
                self.histories = [*self.histories[-10:], self.driver.reply_to(messages, last[0])]
        self.driver.events[:] = [
            event
            for event in self.driver.events
            if getattr(event, "request_id", "") in self.open or not hasattr(event, "request_id")
        ]


def check_random_operations(driver: EngineDriver, num_operations: int) -> None:
    """Every accepted request ends once, and nothing is left behind."""
    users = Users(driver, seed=num_operations)
    for number in range(num_operations):
        users.operate(number)
    driver.settle()
    users.collect()
    assert not users.open
    assert users.num_ended == users.num_accepted > num_operations // 4
    model = driver.engine._model
    assert model is not None
    assert not driver.engine._work
    cache = model.scheduler._cache
    cache.check_integrity()
    cache.forget_saved()
    assert cache.num_pages_used == cache.num_rows_used == 0
    model.experts.check_integrity()


def check_concurrent_texts(driver: EngineDriver) -> None:
    """Greedy texts of 2 to 4 chats are those of each alone."""
    for number, prompt in enumerate(PROMPTS):
        driver.run(generate(f"alone-{number}", prompt, max_tokens=32))
        forget(driver)
    for num_rows in (2, 3, 4):
        for number in range(num_rows):
            driver.send(generate(f"{num_rows}-{number}", PROMPTS[number], max_tokens=32))
        assert most_rows(driver) == num_rows
        forget(driver)
        for number in range(num_rows):
            together, alone = finished(driver, f"{num_rows}-{number}"), finished(driver, f"alone-{number}")
            assert together.generated_ids == alone.generated_ids


def check_joins_and_leaves(driver: EngineDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No text changes. One joins while the chat is read, one while it decodes; one ends early, one is cancelled."""
    driver.run(generate("quiet", PROMPTS[3], max_tokens=48))
    forget(driver)
    monkeypatch.setattr(TimeShare, "has_time", True)
    plans = recorded_plans(driver, monkeypatch)
    driver.send(generate("early", PROMPTS[0], "side_call", max_tokens=12))
    driver.step(2)
    driver.send(generate("disturbed", PROMPTS[3], max_tokens=48))
    driver.step(4)
    driver.send(generate("late", PROMPTS[1], "side_call", max_tokens=60))
    driver.send(generate("cancelled", PROMPTS[2], "side_call", max_tokens=60))
    driver.step(20)
    driver.send(Cancel("cancelled"))
    driver.settle()
    beside = [plan for plan in plans if len({segment.sequence_id for segment in plan.segments}) > 1]
    assert any(segment.sequence_id == "disturbed" for plan in beside for segment in plan.segments)
    assert finished(driver, "disturbed").generated_ids == finished(driver, "quiet").generated_ids
    forget(driver)
    late = driver.run(generate("alone", PROMPTS[1], "side_call", max_tokens=60))
    assert finished(driver, "late").generated_ids == late.generated_ids  # type: ignore[attr-defined]
