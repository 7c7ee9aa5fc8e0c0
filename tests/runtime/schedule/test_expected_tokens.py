"""Planning with tokens that a launched step draws and nobody has read yet."""

from array import array

import pytest

from runtime.cache.sequence_cache import SequenceCache
from runtime.schedule.request import UNKNOWN_ID, Sequence
from runtime.schedule.scheduler import Scheduler


def decoding(max_new_tokens: int = 8) -> tuple[Scheduler, Sequence]:
    """A sequence of 10 tokens, the last of which was generated and is known; its decode step is next."""
    scheduler = Scheduler(SequenceCache(4, 4), 64, max_running=2)
    sequence = Sequence("a", tuple(range(1, 10)), max_new_tokens=max_new_tokens)
    scheduler.submit(sequence)
    scheduler.admit()
    launch(scheduler)
    sequence.generated_ids.append(50)
    return scheduler, sequence


def launch(scheduler: Scheduler) -> tuple[int, ...]:
    """The next step's tokens."""
    plan = scheduler.plan()
    assert plan is not None
    scheduler.complete(plan)
    scheduler.check_integrity()
    return plan.segments[0].token_ids


def saved(scheduler: Scheduler) -> list[list[int]]:
    return [array("i", prefix.packed).tolist() for prefix in scheduler._cache._prefixes]


def test_steps_are_planned_one_ahead_and_tokens_are_learnt_in_order() -> None:
    scheduler, sequence = decoding()
    assert launch(scheduler) == (50,)
    sequence.expect()
    assert launch(scheduler) == (UNKNOWN_ID,)
    sequence.expect()
    sequence.learn(51)
    assert sequence.generated_ids == [50, 51, UNKNOWN_ID]
    sequence.learn(52)
    assert launch(scheduler) == (52,)
    with pytest.raises(AssertionError, match="no token is expected"):
        sequence.learn(53)


def test_the_step_in_flight_computes_the_last_token_of_what_ends() -> None:
    scheduler, sequence = decoding()
    launch(scheduler)
    sequence.expect()
    launch(scheduler)
    sequence.expect()
    sequence.learn(51)
    scheduler.finish("a")
    assert sequence.phase == "ended"
    assert sequence.generated_ids == [50, 51]
    assert saved(scheduler) == [[*range(1, 10), 50, 51]]
    assert scheduler.is_idle


def test_a_token_that_is_not_known_is_not_saved() -> None:
    scheduler, sequence = decoding()
    launch(scheduler)
    sequence.expect()
    scheduler.finish("a")
    assert saved(scheduler) == [[*range(1, 10), 50]]


def test_without_a_step_in_flight_the_last_token_is_computed_as_ever() -> None:
    scheduler, sequence = decoding()
    launch(scheduler)
    sequence.expect()
    sequence.learn(51)
    scheduler.finish("a")
    assert sequence.phase == "closing"
    assert launch(scheduler) == (51,)
    assert saved(scheduler) == [[*range(1, 10), 50, 51]]


def test_no_step_follows_the_last_token_it_may_generate() -> None:
    scheduler, sequence = decoding(max_new_tokens=2)
    launch(scheduler)
    sequence.expect()
    assert scheduler.plan() is None
    other = Sequence("b", (7, 8), max_new_tokens=4)
    scheduler.submit(other)
    assert scheduler.may_admit
    scheduler.admit()
    assert not scheduler.may_admit
    plan = scheduler.plan()
    assert plan is not None
    assert [segment.sequence_id for segment in plan.segments] == ["b"]
