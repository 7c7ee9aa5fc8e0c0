"""The decode step that reads tensors alone gives what the step with host-known lengths gives, and rows don't mix."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_models import CONFIGS, random_model, random_tokens, save_plain, tiny_config

LENGTHS = (1, 63, 70, 150)
NUM_STEPS = 12


def prefilled(folder: Path, texts: list[list[int]], **options: Any) -> DecoderRun:
    run = DecoderRun(folder, **options)
    for row, text in enumerate(texts):
        run.states.reset(row)
        run.step([(row, 0, text)])
    return run


def random_texts(length_after: int = NUM_STEPS) -> list[list[int]]:
    tokens = random_tokens(tiny_config(), sum(LENGTHS) + len(LENGTHS) * length_after)
    texts = []
    for length in LENGTHS:
        texts.append(tokens[: length + length_after])
        tokens = tokens[length + length_after :]
    return texts


def both_ways(run: DecoderRun, other: DecoderRun, texts: list[list[int]]) -> list[tuple[Tensor, Tensor]]:
    """Logits of each step: all rows in one step of tensors, and in one of host-known segments."""
    pairs = []
    for step in range(NUM_STEPS):
        places = [(row, length + step, texts[row][length + step]) for row, length in enumerate(LENGTHS)]
        ours = run.decode(places)
        theirs = other.step([(row, position, [token]) for row, position, token in places], is_decode=True)
        pairs.append((ours, theirs))
    return pairs


@pytest.mark.parametrize("name", CONFIGS)
def test_it_equals_the_step_with_known_lengths(name: str, tmp_path: Path) -> None:
    save_plain(random_model(tiny_config(**CONFIGS[name])), tmp_path)
    texts = random_texts()
    starts = [text[:length] for text, length in zip(texts, LENGTHS, strict=True)]
    for ours, theirs in both_ways(prefilled(tmp_path, starts), prefilled(tmp_path, starts), texts):
        assert (ours - theirs).abs().max() <= 2e-5 * theirs.abs().max()


def test_a_row_does_not_depend_on_the_others(tmp_path: Path) -> None:
    """On a CPU up to the last bits of vectorised exponentials, which depend on where an element lies."""
    save_plain(random_model(tiny_config()), tmp_path)
    texts = random_texts()
    starts = [text[:length] for text, length in zip(texts, LENGTHS, strict=True)]
    together, alone = prefilled(tmp_path, starts), prefilled(tmp_path, starts)
    for step in range(NUM_STEPS):
        places = [(row, length + step, texts[row][length + step]) for row, length in enumerate(LENGTHS)]
        rows = together.decode(places)
        for place, row in zip(places, rows, strict=True):
            assert (alone.decode([place])[0] - row).abs().max() <= 1e-5 * row.abs().max()


def test_a_table_that_stays_in_its_file_is_read_before_the_step(tmp_path: Path) -> None:
    save_plain(random_model(tiny_config()), tmp_path)
    texts = random_texts()
    starts = [text[:length] for text, length in zip(texts, LENGTHS, strict=True)]
    mapped = prefilled(tmp_path, starts, is_ngram_table_mapped=True)
    mapped.decoder.keep_ngram_rows(len(LENGTHS))
    for ours, theirs in both_ways(mapped, prefilled(tmp_path, starts), texts):
        assert (ours - theirs).abs().max() <= 2e-5 * theirs.abs().max()


def test_weights_and_kv_of_16_bits_are_all_that_is_rounded(tmp_path: Path) -> None:
    """A model whose weights are bf16 values loses nothing by holding them as such, and fp16 keys and values little."""
    model = random_model(tiny_config())
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    save_plain(model, tmp_path)
    texts = random_texts()
    starts = [text[:length] for text, length in zip(texts, LENGTHS, strict=True)]
    narrow = {"dtype": torch.bfloat16, "residual_dtype": torch.bfloat16}
    for ours, theirs in both_ways(prefilled(tmp_path, starts, **narrow), prefilled(tmp_path, starts), texts):
        assert (ours - theirs).abs().max() <= 2e-5 * theirs.abs().max()
