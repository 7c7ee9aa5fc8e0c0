"""A replay counts what the slot cache itself counted; Belady's bound is the optimum; nothing beats it."""

from functools import cache as remember
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import UsageError
from runtime.experts.policy import make_policy
from runtime.experts.replay import REPLAY_POLICIES, check_same_model, count_distinct, replay
from runtime.experts.slot_cache import SlotCache
from runtime.experts.trace import DecodeRouted, RoutingTrace, TraceFacts
from tests.support.random_traces import CacheListener, drive, record, shapes

Shape = tuple[TraceFacts, int, int, int]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


def slot_counts(trace: RoutingTrace) -> range:
    """All that are legal and can miss."""
    facts = trace.facts
    return range(min(trace.max_rows * facts.num_choices, facts.num_experts), facts.num_all_experts + 1)


@pytest.mark.parametrize("policy", ["lru", "rule"])
@settings(max_examples=60, deadline=None)
@given(shape=shapes(), share=st.floats(0, 1))
def test_a_replay_counts_what_the_slot_cache_counted(policy: str, folder: Path, shape: Shape, share: float) -> None:
    trace, facts = record(folder / "a.trace", *shape), shape[0]
    counts = slot_counts(trace)
    num_slots = counts[round(share * (len(counts) - 1))]
    cache = SlotCache(
        facts.num_layers, facts.num_experts, num_slots, make_policy(policy, facts.num_layers, facts.num_experts),
        num_choices=facts.num_choices, max_rows=trace.max_rows,
    )  # fmt: skip
    drive(*shape, CacheListener(cache))
    replayed = replay([trace], policy, num_slots)
    assert (replayed.num_routed, replayed.num_missed) == (cache.counters.num_routed, cache.counters.num_missed)
    assert replayed.hit_rate == cache.counters.hit_rate


@settings(max_examples=40, deadline=None)
@given(shape=shapes())
def test_nothing_misses_less_than_belady_at_any_slot_count(folder: Path, shape: Shape) -> None:
    trace = record(folder / "b.trace", *shape)
    for num_slots in slot_counts(trace):
        counted = {policy: replay([trace], policy, num_slots) for policy in REPLAY_POLICIES}
        assert len({counters.num_routed for counters in counted.values()}) == 1
        assert counted["belady"].num_missed <= min(counted["lru"].num_missed, counted["rule"].num_missed)


def fewest_misses(calls: list[frozenset[int]], num_slots: int) -> int:
    """By trying every way to evict, on demand or not, as long as what is routed in a call stays through it."""

    @remember
    def from_call(number: int, resident: frozenset[int]) -> int:
        if number == len(calls):
            return 0
        routed = calls[number]
        others = resident - routed
        num_kept = min(len(others), num_slots - len(routed))
        return len(routed - resident) + min(
            from_call(number + 1, routed | frozenset(kept)) for kept in combinations(sorted(others), num_kept)
        )

    return from_call(0, frozenset())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_layers=st.integers(1, 2),
    num_choices=st.integers(1, 2),
    max_rows=st.integers(1, 2),
)
def test_belady_is_the_optimum(folder: Path, seed: int, num_layers: int, num_choices: int, max_rows: int) -> None:
    facts = TraceFacts("tiny", num_layers, 6 // num_layers, num_choices)
    trace = record(folder / "c.trace", facts, max_rows, 7, seed, has_prefill=False)
    calls = [
        frozenset((event.layer * facts.num_experts + event.expert_ids.reshape(-1)).tolist())
        for event in trace.events()
        if isinstance(event, DecodeRouted)
    ]
    for num_slots in slot_counts(trace):
        assert replay([trace], "belady", num_slots).num_missed == fewest_misses(calls, num_slots)


@settings(max_examples=30, deadline=None)
@given(shape=shapes())
def test_slots_for_all_experts_leave_only_first_uses_to_miss(folder: Path, shape: Shape) -> None:
    trace = record(folder / "d.trace", *shape, has_prefill=False)
    for policy in REPLAY_POLICIES:
        assert replay([trace], policy, shape[0].num_all_experts).num_missed == count_distinct([trace])


@pytest.mark.parametrize("policy", REPLAY_POLICIES)
def test_traces_one_after_the_other_are_one_engine(folder: Path, policy: str) -> None:
    facts = TraceFacts("tiny", 3, 12, 2)
    first, second = (record(folder / f"{seed}.trace", facts, 2, 40, seed, has_prefill=False) for seed in (1, 2))
    joined = RoutingTrace("both", facts, np.concatenate([first.words, second.words]), 80, 2)
    both = replay([first, second], policy, 20)
    assert both.num_missed == replay([joined], policy, 20).num_missed
    apart = [replay([trace], policy, 20) for trace in (first, second)]
    assert both.num_routed == sum(counters.num_routed for counters in apart)
    assert both.num_missed < sum(counters.num_missed for counters in apart)


def test_what_can_not_be_replayed_is_refused(folder: Path) -> None:
    trace = record(folder / "e.trace", TraceFacts("tiny", 2, 8, 3), 1, 5, 0)
    other = record(folder / "f.trace", TraceFacts("tiny", 2, 9, 3), 1, 5, 0)
    with pytest.raises(UsageError, match=r"2 expert slots are too few.*--slots 3 or more"):
        replay([trace], "lru", 2)
    with pytest.raises(UsageError, match=r"e\.trace and .*f\.trace are not of the same model"):
        check_same_model([trace, trace, other])
    assert check_same_model([trace, trace]) == trace.facts
