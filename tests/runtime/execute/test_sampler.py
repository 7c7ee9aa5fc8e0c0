"""Draws follow an independent reference distribution; seeds, penalties and log-probabilities do what they say."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.execute.sampler import Draws, sample
from runtime.kernels.torch_ops.sampler import KEY_END, pack_options, penalise, sample_rows, weights_of
from runtime.options import SamplingOptions

NUM_DRAWS = 4000


def reference(logits: np.ndarray, options: SamplingOptions, generated: list[int]) -> np.ndarray:
    """The distribution by definition, in float64, for logits without ties."""
    x = logits.astype(np.float64).copy()
    for token in set(generated):
        x[token] = x[token] / options.repetition_penalty if x[token] > 0 else x[token] * options.repetition_penalty
        x[token] -= options.presence_penalty
    if options.temperature == 0:
        return np.eye(len(x))[int(x.argmax())]
    p = np.exp((x - x.max()) / options.temperature)
    order = np.argsort(-p)
    kept = list(order[: options.top_k or len(x)])
    mass = np.cumsum(p[kept]) / p[kept].sum()
    kept = kept[: int(np.searchsorted(mass, options.top_p)) + 1]
    kept = [token for token in kept if p[token] >= options.min_p * p.max()]
    q = np.zeros(len(x))
    q[kept] = p[kept]
    return q / q.sum()


OPTIONS = st.builds(
    SamplingOptions,
    temperature=st.sampled_from([0.0, 0.1, 0.7, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 2, 5, 20, 1000]),
    top_p=st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    presence_penalty=st.sampled_from([-1.0, 0.0, 1.5]),
    repetition_penalty=st.sampled_from([0.5, 1.0, 1.3]),
)


def draws(logits: torch.Tensor, options: SamplingOptions, generated: list[int], num: int, seed: int) -> np.ndarray:
    numbers = [Draws.of(seed).number(index) for index in range(num)]
    return np.array([int(sample(logits[None], [options], [generated], [number]).ids) for number in numbers])


@settings(max_examples=60, deadline=None)
@given(OPTIONS, st.integers(0, 2**31), st.lists(st.integers(0, 29), max_size=8))
def test_only_tokens_of_the_reference_are_drawn(options: SamplingOptions, seed: int, generated: list[int]) -> None:
    logits = torch.randn(30, generator=torch.Generator().manual_seed(seed)) * 2
    expected = reference(logits.numpy(), options, generated)
    drawn = set(draws(logits, options, generated, 30, seed).tolist())
    assert all(expected[token] > 0 for token in drawn)


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(temperature=1.0),
        SamplingOptions(temperature=0.7, top_k=5),
        SamplingOptions(temperature=1.3, top_p=0.8),
        SamplingOptions(temperature=1.0, min_p=0.1),
        SamplingOptions(temperature=0.8, top_k=12, top_p=0.9, min_p=0.02, presence_penalty=1.0, repetition_penalty=1.2),
    ],
)
def test_draws_follow_the_reference_distribution(options: SamplingOptions) -> None:
    logits = torch.randn(40, generator=torch.Generator().manual_seed(3)) * 2
    generated = [1, 2, 3, 3, 17]
    expected = reference(logits.numpy(), options, generated)
    counts = np.bincount(draws(logits, options, generated, NUM_DRAWS, 11), minlength=40)
    is_possible = expected > 0
    assert not counts[~is_possible].any()
    rare = is_possible & (expected * NUM_DRAWS < 5)
    observed = np.append(counts[is_possible & ~rare], counts[rare].sum())
    wanted = NUM_DRAWS * np.append(expected[is_possible & ~rare], expected[rare].sum())
    chi_squared = float(((observed - wanted) ** 2 / np.maximum(wanted, 1e-9))[wanted > 0].sum())
    freedom = len(wanted) - 1
    # The statistic has mean `freedom` and variance 2 * freedom; five sigma never happens by chance.
    assert chi_squared < freedom + 5 * math.sqrt(2 * freedom)


def test_the_same_seed_gives_the_same_ids_whatever_else_is_in_the_batch() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    options = SamplingOptions(temperature=1.0, top_k=30)
    alone = [draws(logits[row], options, [], 20, 7 + row).tolist() for row in range(3)]
    sources = [Draws.of(7 + row) for row in range(3)]
    steps = [
        sample(logits, [options] * 3, [[], [], []], [source.number(index) for source in sources]).ids.tolist()
        for index in range(20)
    ]
    assert [list(row) for row in zip(*steps, strict=True)] == alone
    assert draws(logits[0], options, [], 20, 8).tolist() != alone[0]


def test_without_a_seed_two_requests_differ() -> None:
    assert Draws.of(None) != Draws.of(None)
    assert Draws.of(-5) == Draws.of(-5)
    assert Draws.of(-5).number(0) != Draws.of(5).number(0)


def test_greedy_takes_the_lowest_of_the_best_and_draws_nothing() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0]])
    for number in (0.0, 0.5, 0.999):
        assert sample(logits, [SamplingOptions(top_k=3)], [[]], [number]).ids.tolist() == [1]


def test_penalties_look_at_generated_tokens_once_each() -> None:
    logits = torch.tensor([4.0, -4.0, 1.0])
    options = SamplingOptions(presence_penalty=0.5, repetition_penalty=2.0)
    choice = pack_options([options])[0]
    assert penalise(logits, torch.tensor([1, 1, 0]), choice).tolist() == [1.5, -8.5, 1.0]
    assert logits.tolist() == [4.0, -4.0, 1.0]
    assert penalise(logits, torch.ones(3), pack_options([SamplingOptions()])[0]) is logits
    seen, rows = torch.zeros(2, 3, dtype=torch.uint8), torch.tensor([1])
    sample_rows(logits[None], choice[None], seen, rows, torch.zeros(1, dtype=torch.float64))
    assert seen.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert int(sample(logits[None], [options], [[0, 0]], [0.0]).ids) == 0
    assert int(sample(logits[None], [SamplingOptions(presence_penalty=2.0)], [[0]], [0.0]).ids) == 0
    harsh = SamplingOptions(presence_penalty=2.0, repetition_penalty=2.0)
    assert int(sample(logits[None], [harsh], [[0]], [0.0]).ids) == 2


def test_logprobs_are_of_the_models_own_distribution() -> None:
    logits = torch.randn(2, 30, generator=torch.Generator().manual_seed(5))
    options = SamplingOptions(temperature=0.3, top_k=2, presence_penalty=2.0)
    sampled = sample(logits, [options, SamplingOptions()], [[1], []], [0.3, 0.6])
    expected = logits.log_softmax(1)[torch.arange(2), sampled.ids]
    torch.testing.assert_close(sampled.logprobs, expected)


@pytest.mark.parametrize("temperature", [1e-6, 10.0])
def test_extremes_stay_finite(temperature: float) -> None:
    logits = torch.tensor([[-1e30, 80.0, -math.inf, 79.0, 3e30]])
    options = SamplingOptions(temperature=temperature, top_k=4, top_p=0.999)
    sampled = sample(logits, [options], [[]], [0.4])
    assert sampled.ids.tolist() == [4]
    assert sampled.logprobs.tolist() == [0.0]


def test_ties_with_the_last_kept_token_are_kept() -> None:
    logits = torch.tensor([1.0, 1.0, 1.0, 0.0])
    assert set(draws(logits, SamplingOptions(temperature=1.0, top_k=1), [], 60, 1).tolist()) == {0, 1, 2}


def test_broken_logits_show_in_the_logprob() -> None:
    logits = torch.tensor([[math.nan, 1.0]])
    for options in (SamplingOptions(), SamplingOptions(temperature=1.0, top_k=1, top_p=0.5)):
        sampled = sample(logits, [options], [[]], [0.4])
        assert 0 <= int(sampled.ids) < 2
        assert math.isnan(float(sampled.logprobs))


def test_weights_are_powers_of_two() -> None:
    keys = torch.cat([torch.arange(0, KEY_END, 8191), torch.tensor([0, 1, (1 << 24) - 1, 1 << 24, KEY_END])]).int()
    expected = torch.exp2(-keys.double() / 2**24) * 2**44
    assert ((weights_of(keys) - expected).abs() <= expected * 1e-10 + 1).all()
    assert weights_of(keys[-5:]).tolist()[0] == 2**44
    assert int(weights_of(keys[-1:])) == 0


def test_numbers_of_a_request_are_spread_evenly() -> None:
    numbers = np.array([[Draws.of(seed).number(index) for index in range(500)] for seed in range(20)])
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert len(np.unique(numbers)) == numbers.size
    counts = np.bincount((numbers * 16).astype(int).ravel(), minlength=16)
    assert ((counts - 625) ** 2 / 625).sum() < 15 + 5 * math.sqrt(30)
    assert abs(np.corrcoef(numbers[0], numbers[1])[0, 1]) < 0.2
