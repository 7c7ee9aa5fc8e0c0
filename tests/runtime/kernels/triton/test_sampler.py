"""The device draws the twin's tokens, all of them; a row's bits are its own."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from runtime.kernels.torch_ops import sampler as twin
from runtime.kernels.torch_ops.sampler import pack_options
from runtime.kernels.triton_ops.sampler import sample_rows
from runtime.options import SamplingOptions
from tests.support.row_independence import assert_rows_stand_alone, poison_new_memory

GENERATED: list[list[int]] = [[1, 2, 3], [], [5], [7, 7]]
CHOICES = [
    SamplingOptions(),
    SamplingOptions(presence_penalty=2.0, repetition_penalty=0.5),
    SamplingOptions(temperature=1.0),
    SamplingOptions(temperature=0.7, top_k=5),
    SamplingOptions(temperature=1.3, top_p=0.8),
    SamplingOptions(temperature=1.0, min_p=0.1),
    SamplingOptions(temperature=0.8, top_k=12, top_p=0.9, min_p=0.02, presence_penalty=1.0, repetition_penalty=1.2),
    SamplingOptions(temperature=2.5, top_k=1000, top_p=0.3, presence_penalty=-1.0),
]


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    poison_new_memory(monkeypatch)


def make_seen(vocab_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The table of generated tokens, and each row's place in it."""
    seen, rows = torch.zeros(6, vocab_size, dtype=torch.uint8, device=device), torch.tensor([3, 0, 5, 1], device=device)
    for row, tokens in zip(rows.tolist(), GENERATED, strict=True):
        seen[row, tokens] = 1
    return seen, rows


def draw(num_rows: int, seed: int) -> Tensor:
    return torch.rand(num_rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check(logits: Tensor, options: list[SamplingOptions], seed: int) -> None:
    seen, rows = make_seen(logits.shape[1], logits.device)
    inputs = pack_options(options), seen, rows, draw(4, seed)
    # The twin on the CPU, where its sums are its own; the kernel must not differ in one draw.
    expected, expected_logprobs = twin.sample_rows(logits.cpu(), *(tensor.cpu().clone() for tensor in inputs))
    ids, logprobs = sample_rows(logits, *(tensor.to(logits.device) for tensor in inputs))
    assert ids.tolist() == expected.tolist()
    torch.testing.assert_close(logprobs.cpu(), expected_logprobs, rtol=1e-5, atol=2e-6)
    marked, _ = make_seen(logits.shape[1], logits.device)
    marked[rows, ids] = 1
    assert torch.equal(seen, marked)


@pytest.mark.parametrize(
    ("options", "vocab_size"), [*((options, 1500) for options in CHOICES), (CHOICES[6], 40), (CHOICES[7], 40)]
)
def test_draws_equal_those_of_the_sampler(options: SamplingOptions, vocab_size: int, device: torch.device) -> None:
    check(torch.randn(4, vocab_size, device=device) * 3, [options] * 4, vocab_size)


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(temperature=1.0, top_p=0.9),
        SamplingOptions(temperature=1.0, top_k=600),
        SamplingOptions(temperature=1.0, top_k=600, top_p=0.7),
        SamplingOptions(temperature=1.0, top_k=200, top_p=0.5),
    ],
)
def test_flat_rows_keep_more_tokens_than_are_ranked(options: SamplingOptions, device: torch.device) -> None:
    logits = torch.randn(4, 5000, device=device) * 0.1
    logits[1] *= 100
    check(logits, [options] * 4, 7)


def test_log_probabilities_do_not_hang_on_where_the_logits_lie(device: torch.device) -> None:
    logits = torch.randn(4, 1500, device=device)
    check(
        logits + torch.tensor([[0.0], [60.0], [-900.0], [3e4]], device=device),
        [SamplingOptions(temperature=1.0)] * 4,
        5,
    )


def test_rows_of_one_batch_have_options_of_their_own(device: torch.device) -> None:
    logits = torch.randn(4, 1500, device=device) * 3
    check(logits, [CHOICES[0], CHOICES[6], CHOICES[2], CHOICES[4]], 3)
    seen, rows = make_seen(1500, device)
    choices, uniforms = pack_options(CHOICES[3:7]).to(device), draw(4, 0).to(device)
    assert_rows_stand_alone(
        lambda part: sample_rows(logits[part], choices[part], seen.clone(), rows[part], uniforms[part]), 4
    )


def test_ties_with_the_last_kept_token_are_kept(device: torch.device) -> None:
    logits = torch.tensor([[1.0, 1.0, 1.0, 0.0]], device=device)
    for options in (SamplingOptions(temperature=1.0, top_k=1), SamplingOptions(temperature=1.0, top_p=0.01)):
        drawn = set()
        for place in (0.1, 0.5, 0.9, 0.999999):
            seen, rows = torch.zeros(1, 4, dtype=torch.uint8, device=device), torch.zeros(1, dtype=int, device=device)
            uniforms = torch.tensor([place], dtype=torch.float64, device=device)
            ids, _ = sample_rows(logits, pack_options([options]).to(device), seen, rows, uniforms)
            drawn.add(int(ids))
        assert drawn == {0, 1, 2}


def test_greedy_takes_the_lowest_of_the_best(device: torch.device) -> None:
    logits = torch.zeros(4, 2100, device=device)
    logits[0, [1030, 1029, 2000]] = 2.0
    logits[1, [3, 2099]] = 2.0
    check(logits, [SamplingOptions()] * 4, 0)


def test_extremes_stay_finite_and_broken_logits_show(device: torch.device) -> None:
    logits = torch.tensor([[-1e30, 80.0, -math.inf, 79.0, 3e30, 0.0, 0.0, 0.0]], device=device).repeat(4, 1)
    for temperature in (1e-6, 10.0):
        options = SamplingOptions(temperature=temperature, top_k=4, top_p=0.999)
        check(logits, [replace(options, min_p=0.1), options, replace(options, top_k=0), SamplingOptions()], 0)
    seen, rows = make_seen(8, device)
    logits[:, 0] = math.nan
    for options in (SamplingOptions(), SamplingOptions(temperature=1.0, top_k=1, top_p=0.5)):
        choices = pack_options([options] * 4).to(device)
        ids, logprobs = sample_rows(logits, choices, seen, rows, draw(4, 0).to(device))
        assert ((ids >= 0) & (ids < 8)).all()
        assert logprobs.isnan().all()


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(temperature=1.0, top_p=0.5),
        SamplingOptions(temperature=1.0, top_k=2100),
        SamplingOptions(temperature=1.0, top_k=2100, top_p=0.4),
    ],
)
def test_more_tokens_than_can_be_listed(options: SamplingOptions, device: torch.device) -> None:
    """Equal ones, two values, a cluster far below the best, and one that only the whole row's bits tell apart."""
    logits = torch.zeros(4, 2500, device=device)
    logits[1, ::3] = 1.0
    logits[2] = torch.randn(2500) * 1e-4 - 3.0
    logits[2, 7], logits[2, 9] = 0.0, -40.0
    logits[3] = torch.randn(2500) * 1e-6 + 1.0
    check(logits, [options] * 4, 5)


def test_tokens_that_are_barred_are_never_drawn(device: torch.device) -> None:
    logits = torch.full((4, 1100), -math.inf, device=device)
    logits[:, 1090:1094] = torch.tensor([1.0, 2.0, 1.5, 0.0], device=device)
    for options in (CHOICES[2], CHOICES[3], CHOICES[4], SamplingOptions(temperature=1.0, top_k=50, top_p=0.9)):
        check(logits[:, :1099], [options] * 4, 2)
