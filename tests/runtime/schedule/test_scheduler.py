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


@pytest.mark.parametrize("num_step_chunks", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_every_page_and_row_comes_back_after_random_traffic(seed: int, num_step_chunks: int) -> None:
    rng = random.Random(seed)
    cache = SequenceCache(9, 4)
    scheduler = Scheduler(cache, chunk_tokens=16, num_step_chunks=num_step_chunks)
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
        if plan is not None and len(plan.chunks) > 1 and rng.random() < 0.3:
            scheduler.undo(plan)
        elif plan is not None:
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


@pytest.mark.parametrize("seed", range(30))
def test_a_long_step_has_the_chunks_that_steps_of_their_own_have(seed: int) -> None:
    rng = random.Random(seed)
    num_tokens, chunk_tokens = rng.randint(1, 200), rng.randint(1, 40)
    points = frozenset(rng.choices(range(1, num_tokens + 1), k=3))

    def chunks_of(num_step_chunks: int) -> list[list[tuple[object, ...]]]:
        cache = SequenceCache(16, 6)
        scheduler = Scheduler(cache, chunk_tokens, num_step_chunks=num_step_chunks)
        scheduler.submit(Sequence("a", tuple(range(num_tokens)), points))
        plans = run_prefill(scheduler)
        assert all(plan.num_tokens <= num_step_chunks * chunk_tokens for plan in plans)
        assert len(plans) == -(-num_tokens // (num_step_chunks * chunk_tokens))
        return [
            [
                (part.token_ids, part.start, len(part.page_ids), part.logit_offsets, part.save_row is not None)
                for part in chunk.segments
            ]
            for plan in plans
            for chunk in plan.chunks
        ]

    assert chunks_of(rng.randint(2, 8)) == chunks_of(1)


def test_a_step_that_is_given_up_is_planned_again_and_saves_nothing() -> None:
    cache = SequenceCache(16, 6)
    scheduler = Scheduler(cache, 8, num_step_chunks=4)
    scheduler.submit(Sequence("a", tuple(range(40)), frozenset({4, 10, 36})))
    scheduler.admit()
    plan = scheduler.plan()
    assert plan is not None
    assert plan.moves
    assert cache.num_saved == 2
    scheduler.undo(plan)
    scheduler.check_integrity()
    assert cache.num_saved == 0
    again = scheduler.plan()
    assert again is not None
    assert not again.moves
    assert [(part.start, part.end) for part in again.segments] == [(part.start, part.end) for part in plan.segments]
    scheduler.complete(again)
    scheduler.finish("a")
    assert scheduler.is_idle
    assert cache.reusable_prefix(range(40)) is not None


def test_a_step_is_long_only_for_a_chat_that_no_other_chat_waits_beside() -> None:
    scheduler = Scheduler(SequenceCache(32, 6), 8, max_running=3, num_step_chunks=4)
    chat = Sequence("a", (1, 2), max_new_tokens=9)
    scheduler.submit(chat)
    run_prefill(scheduler)
    scheduler.submit(Sequence("b", tuple(range(50)), max_new_tokens=9))
    scheduler.admit()
    for token in range(3):
        chat.generated_ids.append(token)
        for sequence_id, num_tokens in (("a", 1), ("b", 8)):
            plan = scheduler.plan()
            assert plan is not None
            assert (plan.segments[0].sequence_id, plan.num_tokens) == (sequence_id, num_tokens)
            scheduler.complete(plan)
    scheduler.finish("a")
    plan = scheduler.plan()
    assert plan is not None
    assert plan.num_tokens == 50 - 3 * 8
    scheduler.drop("b")
    scheduler.submit(Sequence("c", tuple(range(50)), is_scored=True))
    assert {plan.num_tokens for plan in run_prefill(scheduler)} <= {8, 2}
    scheduler.finish("c")
    scheduler.submit(Sequence("d", tuple(range(50)), kind="side_call"))
    assert {plan.num_tokens for plan in run_prefill(scheduler)} <= {8, 2}
