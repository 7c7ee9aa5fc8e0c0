"""The decoder against transformers' fp64 run where round-off is amplified most: keys that all point the same way under
strong decay, deep models with large weights, and both together. Every way to feed the tokens, and those among each
other."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.agreement import BOUND, assert_is_exact, clear_text, reference_of, relative_error
from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_models import (
    random_model,
    random_tokens,
    save_plain,
    scale_weights,
    strengthen_decay,
    tiny_config,
)

NUM_TOKENS = 100
CHUNKS = (3, 7, 64, NUM_TOKENS)

# Positions after a near-tie are not compared; a text that has fewer before it would show little.
FEWEST_COMPARED = 30

STRONG_DECAY_CASES = [(seed, text_seed) for seed in range(8) for text_seed in range(5)]
LARGE_WEIGHT_CASES = [(seed, seed) for seed in range(6)]
HARD_CASES = [(seed, seed) for seed in range(8)]

BEYOND_FP32 = pytest.mark.xfail(
    reason="a delta net's read-out nearly vanishes at one position and its norm blows up the fp32 round-off of all "
    "that leads there (off by up to 2.1e-4, runs differ by up to 3.9e-4), or a choice by 1e-5 to 2e-5 falls otherwise",
    raises=AssertionError,
    strict=False,
)
"""Just within the bound if residual streams, the hyper-connections before delta nets and the delta nets are fp64, which
takes 8 % longer to decode and about 20 % to read a prompt. Which cases fail depends on the BLAS library."""


def cases(all_cases: list[tuple[int, int]], beyond_fp32: set[tuple[int, int]]) -> list[Any]:
    """Parameters of a test, those that fp32 misses marked."""
    return [pytest.param(*case, marks=[BEYOND_FP32] if case in beyond_fp32 else []) for case in all_cases]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", range(3))
def test_strong_decay_and_alike_keys(seed: int, tmp_path: Path) -> None:
    model = strong_decay_model(seed)
    check(model, clear_text(model, NUM_TOKENS), tmp_path)


def test_eight_layers_of_large_weights(tmp_path: Path) -> None:
    model = large_weight_model(0)
    check(model, clear_text(model, NUM_TOKENS), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "text_seed"), cases(STRONG_DECAY_CASES, {(4, 4), (5, 0), (6, 3), (7, 0)}))
def test_strong_decay_and_alike_keys_of_more_texts(seed: int, text_seed: int, tmp_path: Path) -> None:
    model = strong_decay_model(seed)
    check(model, random_tokens(model.config, NUM_TOKENS, text_seed), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "text_seed"), cases(LARGE_WEIGHT_CASES, {(3, 3)}))
def test_eight_layers_of_large_weights_of_more_seeds(seed: int, text_seed: int, tmp_path: Path) -> None:
    model = large_weight_model(seed)
    check(model, random_tokens(model.config, NUM_TOKENS, text_seed), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("seed", "text_seed"), cases(HARD_CASES, {(4, 4), (6, 6)}))
def test_large_weights_with_strong_decay_and_equal_keys(seed: int, text_seed: int, tmp_path: Path) -> None:
    model = large_weight_model(seed)
    strengthen_decay(model, key_spread=0.001, key_offset=0.3)
    check(model, random_tokens(model.config, NUM_TOKENS, text_seed), tmp_path)


def strong_decay_model(seed: int) -> Any:
    model = random_model(tiny_config(), seed)
    strengthen_decay(model)
    return model


def large_weight_model(seed: int) -> Any:
    model = random_model(tiny_config(), seed)
    scale_weights(model, 1.4)
    return model


def check(model: Any, tokens: list[int], folder: Path) -> None:
    """Each mode against transformers, and all modes against each other, up to the first near-tie."""
    reference = reference_of(model, tokens)
    assert reference.first_near_tie >= FEWEST_COMPARED
    run = DecoderRun(save_plain(model, folder))
    modes = [run.in_chunks(tokens, chunk_tokens) for chunk_tokens in CHUNKS] + [run.by_decode(tokens)]
    for logits in modes:
        assert_is_exact(logits, reference)
    for one, other in combinations(modes, 2):
        assert relative_error(one, other)[: reference.first_near_tie].max() <= BOUND
