"""Victims of both policies equal those of an independent model over random traces; the slot map stays sound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import UsageError
from runtime.experts.policy import POLICIES, make_policy
from runtime.experts.policy_rule import LOG2_TABLE, RulePolicy, count_use
from runtime.experts.slot_cache import SlotCache
from tests.support import policy_models as models


def make_model(name: str, num_layers: int, num_slots: int) -> models.SlotModel:
    policy = models.RuleModel(num_layers) if name == "rule" else models.LruModel()
    return models.SlotModel(policy, num_slots)


@st.composite
def traces(draw: st.DrawFn) -> tuple[int, int, int, int, int, int]:
    num_layers = draw(st.integers(1, 5))
    num_experts = draw(st.integers(2, 12))
    num_choices = draw(st.integers(1, min(4, num_experts)))
    fewest = min(num_experts, 4 * num_choices)
    num_slots = draw(st.integers(fewest, max(fewest, num_layers * num_experts)))
    return num_layers, num_experts, num_choices, num_slots, draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 60))


def random_call(
    rng: np.random.Generator, num_rows: int, bias: np.ndarray, num_choices: int
) -> tuple[np.ndarray, np.ndarray]:
    """Logits on a grid of 1/16 so that equal logits and exact distances of 0.25 occur; top-k as a router would."""
    logits = (np.round((bias + rng.normal(size=(num_rows, len(bias)))) * 16) / 16).astype(np.float32)
    return np.argsort(-logits, axis=1, kind="stable")[:, :num_choices].astype(np.int64), logits


@pytest.mark.parametrize("name", ["lru", "rule"])
@settings(max_examples=60, deadline=None)
@given(trace=traces())
def test_victims_equal_the_model(name: str, trace: tuple[int, int, int, int, int, int]) -> None:
    num_layers, num_experts, num_choices, num_slots, seed, num_steps = trace
    rng = np.random.default_rng(seed)
    cache = SlotCache(
        num_layers, num_experts, num_slots, make_policy(name, num_layers, num_experts),
        num_choices=num_choices, max_rows=4,
    )  # fmt: skip
    model = make_model(name, num_layers, num_slots)
    bias = rng.normal(size=(num_layers, num_experts)) * 2
    for _ in range(num_steps):
        num_rows = int(rng.integers(1, 5))
        for _ in range(int(rng.choice([1, 1, 1, 70, 20_000])) if rng.random() < 0.1 else 1):
            cache.begin_step()
            model.policy.begin_step()
        for layer in range(num_layers):
            expert_ids, logits = random_call(rng, num_rows, bias[layer], num_choices)
            plan = cache.ensure(layer, expert_ids, logits)
            assert list(plan.missed) == model.ensure(layer, expert_ids.tolist(), logits.tolist())
            expected = [[model.slots.index((layer, expert)) for expert in row] for row in expert_ids.tolist()]
            assert plan.slots.tolist() == expected
            cache.check_integrity()


@pytest.mark.parametrize("name", ["lru", "rule"])
def test_long_run_keeps_the_slot_map_sound(name: str) -> None:
    num_layers, num_experts, num_choices, num_slots = 6, 16, 3, 37
    rng = np.random.default_rng(7)
    cache = SlotCache(
        num_layers, num_experts, num_slots, make_policy(name, num_layers, num_experts),
        num_choices=num_choices, max_rows=4,
    )  # fmt: skip
    bias = rng.normal(size=(num_layers, num_experts))
    for step in range(1500):
        if step % 97 == 96:
            cache.clear()
        if step % 10 == 0:
            cache.place(int(rng.integers(num_layers)), [])
        cache.begin_step()
        for layer in range(num_layers):
            expert_ids, logits = random_call(rng, 1 + step % 4, bias[layer], num_choices)
            plan = cache.ensure(layer, expert_ids, logits)
            assert plan.slots.min() >= 0
            assert plan.slots.max() < num_slots
            cache.check_integrity()
    assert 0.0 < (cache.counters.hit_rate or 0.0) < 1.0


def test_empty_slots_come_first_and_ties_go_to_the_lowest_slot() -> None:
    cache = SlotCache(1, 8, 4, make_policy("lru", 1, 8), num_choices=2)
    logits = np.zeros((1, 8), np.float32)
    assert cache.ensure(0, np.array([[5, 3]]), logits).missed == ((3, 0), (5, 1))
    assert cache.ensure(0, np.array([[1, 2]]), logits).missed == ((1, 2), (2, 3))
    assert cache.ensure(0, np.array([[6, 7]]), logits).missed == ((6, 0), (7, 1))


def test_rule_protects_what_runs_soon_and_what_is_used_often() -> None:
    def age(times_used: dict[int, int], steps: int) -> RulePolicy:
        policy = RulePolicy(1, 4)
        for step in range(steps):
            policy.begin_step()
            used = np.array([expert for expert, times in times_used.items() if step >= steps - times], np.int64)
            if len(used):
                policy.note_use(0, used, used[None], np.where(np.isin(np.arange(4), used), 9, 0)[None].astype("f4"))
        return policy

    often, once = age({0: 8, 1: 1}, 8).scores(0, np.array([0, 1]))
    assert often > once
    layers = RulePolicy(4, 1)
    layers.begin_step()
    for layer in range(4):
        layers.note_use(layer, np.array([0]), np.array([[0]]), np.zeros((1, 1), np.float32))
    layers.begin_step()
    soon, late = layers.scores(1, np.array([2, 1]))
    assert soon > late


def test_near_miss_counts_as_used_a_token_ago_but_never_as_a_use() -> None:
    policy = RulePolicy(1, 4)
    for _ in range(50):
        policy.begin_step()
    never = policy.scores(0, np.array([1]))[0]
    logits = np.array([[1.0, 0.75, 0.7499, -3.0]], np.float32)
    policy.note_use(0, np.array([0]), np.array([[0]]), logits)
    near, missed = policy.scores(0, np.array([1, 2]))
    assert near - never == ((1 << 14) - 1) << 16
    assert missed == never


def test_first_use_counts_one_and_the_table_is_rounded_exactly() -> None:
    assert count_use(np.array([-(1 << 40)]))[0] == 0
    assert count_use(np.array([0]))[0] == 1 << 16
    assert len(LOG2_TABLE) == 18 * 256 + 1
    for step in (*range(600), *range(600, 18 * 256, 37)):
        assert LOG2_TABLE[step] == models.softplus2(step)
    values = np.arange(-20 << 16, 20 << 16, 997)
    assert count_use(values).tolist() == [models.plus_one(int(value)) for value in values]


def test_names() -> None:
    assert set(POLICIES) == {"lru", "rule"}
    assert all(make_policy(name, 2, 3).name == name for name in POLICIES)
    with pytest.raises(UsageError, match=r"'fifo'.*lru, rule"):
        make_policy("fifo", 2, 3)


@pytest.mark.parametrize(("num_slots", "max_rows", "fewest"), [(0, 1, 4), (3, 1, 4), (15, 4, 16)])
def test_too_few_slots_are_refused_with_the_number(num_slots: int, max_rows: int, fewest: int) -> None:
    with pytest.raises(UsageError, match=f"^{num_slots} expert slots are too few.*--slots {fewest} or more$"):
        SlotCache(2, 48, num_slots, make_policy("lru", 2, 48), num_choices=4, max_rows=max_rows)


def test_a_damaged_slot_map_is_seen() -> None:
    cache = SlotCache(2, 4, 5, make_policy("rule", 2, 4), num_choices=2)
    cache.begin_step()
    cache.ensure(1, np.array([[0, 3]]), np.zeros((1, 4), np.float32))
    cache.check_integrity()
    cache._slot_of[0, 0] = 1
    with pytest.raises(AssertionError, match="disagree"):
        cache.check_integrity()
