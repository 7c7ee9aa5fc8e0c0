"""Promises of planning: first come first served, chunks end at the save point, whole turns are left to the next."""

import random

import pytest

from runtime.cache.sequence_cache import SequenceCache
from runtime.schedule.request import Sequence
from runtime.schedule.scheduler import Scheduler
from runtime.schedule.step_plan import StepPlan


def make(num_pages: int = 16, num_rows: int = 6, chunk_tokens: int = 8) -> Scheduler:
    return Scheduler(SequenceCache(num_pages, num_rows), chunk_tokens)


def run_prefill(scheduler: Scheduler) -> list[StepPlan]:
    """Steps until the running prompt is computed."""
    scheduler.admit()
    plans = []
    while True:
        plan = scheduler.plan()
        assert plan is not None
        scheduler.complete(plan)
        scheduler.check_integrity()
        plans.append(plan)
        if plan.segments[-1].logit_offsets:
            return plans


def answer(scheduler: Scheduler, sequence: Sequence, tokens: list[int]) -> None:
    """Prefill, decode the given tokens, close."""
    run_prefill(scheduler)
    for token in tokens[:-1]:
        sequence.generated_ids.append(token)
        plan = scheduler.plan()
        assert plan is not None
        assert plan.is_decode
        assert plan.segments[0].token_ids == (token,)
        scheduler.complete(plan)
    sequence.generated_ids.append(tokens[-1])
    scheduler.finish(sequence.sequence_id)
    while not scheduler.is_idle:
        plan = scheduler.plan()
        assert plan is not None
        scheduler.complete(plan)
        scheduler.check_integrity()


def test_chunks_are_consecutive_and_saved_on_the_way() -> None:
    scheduler = make()
    scheduler.submit(Sequence("a", tuple(range(30)), save_points=frozenset({8, 21})))
    plans = run_prefill(scheduler)
    spans = [[(segment.start, segment.end) for segment in plan.segments] for plan in plans]
    assert spans == [[(0, 8)], [(8, 16)], [(16, 21), (21, 24)], [(24, 30)]]
    segments = [segment for plan in plans for segment in plan.segments]
    assert [segment.logit_offsets for segment in segments] == [(), (), (), (), (5,)]
    assert [segment.save_row is not None for segment in segments] == [True, False, True, False, False]
    assert len({segment.state_row for segment in segments}) == 1
    assert not any(plan.is_decode for plan in plans)


def test_next_turn_computes_only_its_own_tokens() -> None:
    scheduler = make()
    first = Sequence("a", tuple(range(20)), save_points=frozenset({17}))
    scheduler.submit(first)
    answer(scheduler, first, [50, 51, 52])
    second = Sequence("b", (*range(20), 50, 51, 52, 60, 61), save_points=frozenset({24}))
    scheduler.submit(second)
    run_prefill(scheduler)
    assert second.num_cached == 23


def test_dropped_answer_falls_back_to_the_save_point() -> None:
    """A template that leaves the old reasoning out repeats everything before the generation prompt."""
    scheduler = make()
    first = Sequence("a", tuple(range(20)), save_points=frozenset({17}))
    scheduler.submit(first)
    answer(scheduler, first, [50, 51, 52])
    second = Sequence("b", (*range(17), 52, 60, 61))
    scheduler.submit(second)
    scheduler.admit()
    assert second.num_cached == 17


def test_first_come_first_served() -> None:
    scheduler = make()
    for name in "abc":
        scheduler.submit(Sequence(name, (1, 2, 3)))
    for name in "abc":
        assert [sequence.sequence_id for sequence in scheduler.admit()] == [name]
        assert scheduler.admit() == []
        scheduler.finish(name)
    assert scheduler.is_idle


def test_cancelled_in_the_queue_and_in_prefill() -> None:
    scheduler = make()
    running, waiting = Sequence("a", tuple(range(30))), Sequence("b", (1,))
    scheduler.submit(running)
    scheduler.submit(waiting)
    scheduler.admit()
    plan = scheduler.plan()
    assert plan is not None
    scheduler.complete(plan)
    scheduler.finish("b")
    scheduler.finish("a")
    assert scheduler.is_idle
    again = Sequence("c", tuple(range(30)))
    scheduler.submit(again)
    scheduler.admit()
    assert again.num_cached == 8


def test_scored_sequences_want_every_logit_and_leave_nothing() -> None:
    scheduler = make()
    scored = Sequence("a", tuple(range(10)), is_scored=True, chunk_tokens=4)
    scheduler.submit(scored)
    scheduler.admit()
    offsets = []
    while scored.num_computed < 10:
        plan = scheduler.plan()
        assert plan is not None
        offsets.append(plan.segments[0].logit_offsets)
        scheduler.complete(plan)
    scheduler.finish("a")
    assert offsets == [(0, 1, 2, 3), (0, 1, 2, 3), (0, 1)]
    chat = Sequence("b", tuple(range(11)))
    scheduler.submit(chat)
    scheduler.admit()
    assert chat.num_cached == 0


def test_fed_by_decode_is_one_token_per_decode_step() -> None:
    scheduler = make()
    scheduler.submit(Sequence("a", (5, 6, 7), is_scored=True, is_fed_by_decode=True))
    scheduler.admit()
    for token in (5, 6, 7):
        plan = scheduler.plan()
        assert plan is not None
        assert plan.is_decode
        assert plan.segments[0].token_ids == (token,)
        scheduler.complete(plan)


def test_abandoned_step_ends_what_runs_and_forgets_what_was_saved() -> None:
    scheduler = make()
    first = Sequence("a", tuple(range(20)))
    scheduler.submit(first)
    answer(scheduler, first, [50])
    scheduler.submit(Sequence("b", (*range(20), 50, 51)))
    scheduler.submit(Sequence("c", (*range(20), 50, 51)))
    scheduler.admit()
    assert scheduler.abandon() == ["b"]
    admitted = scheduler.admit()
    assert [(sequence.sequence_id, sequence.num_cached) for sequence in admitted] == [("c", 0)]


@pytest.mark.parametrize("seed", range(5))
def test_every_page_and_row_comes_back_after_random_traffic(seed: int) -> None:
    rng = random.Random(seed)
    cache = SequenceCache(9, 4)
    scheduler = Scheduler(cache, chunk_tokens=16)
    running: dict[str, Sequence] = {}
    history: list[tuple[int, ...]] = [()]
    for number in range(300):
        base = rng.choice(history)
        if len(base) < 380 and rng.random() < 0.3:
            new = tuple(rng.randrange(3) for _ in range(rng.randint(1, 60)))
            sequence = Sequence(
                f"s{number}",
                base + new,
                save_points=frozenset(rng.sample(range(1, len(base + new)), min(2, len(base + new) - 1))),
            )
            running[sequence.sequence_id] = sequence
            scheduler.submit(sequence)
        scheduler.admit()
        plan = scheduler.plan()
        if plan is not None:
            scheduler.complete(plan)
            sequence = running[plan.segments[0].sequence_id]
            if plan.segments[-1].logit_offsets:
                sequence.generated_ids.append(rng.randrange(3))
                if rng.random() < 0.1 or sequence.num_tokens > 500:
                    scheduler.finish(sequence.sequence_id)
                    history.append(sequence.tokens(0, sequence.num_tokens))
        if running and rng.random() < 0.05:
            name = rng.choice(sorted(running))
            if running[name].phase not in ("ended", "closing"):
                scheduler.finish(name)
        scheduler.check_integrity()
    for name, sequence in running.items():
        if sequence.phase != "ended":
            scheduler.drop(name)
    cache.forget_saved()
    assert cache.num_pages_used == cache.num_rows_used == 0
