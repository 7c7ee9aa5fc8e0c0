"""The decoder against transformers, for every family beside qwen4_exp: whole, in chunks and token by token."""

from pathlib import Path

import pytest

from runtime.families.registry import FAMILIES
from tests.support.agreement import assert_agrees, clear_text
from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_families import CONFIG_CLASSES, FAMILY_CONFIGS, family_config
from tests.support.tiny_models import random_model, reference_logits, save_plain, tiny_config

pytestmark = pytest.mark.usefixtures("one_thread")


def test_every_family_is_compared() -> None:
    assert {family.name for family in FAMILIES} == {*CONFIG_CLASSES, "qwen4_exp"}


@pytest.mark.parametrize(("family", "name"), FAMILY_CONFIGS)
def test_agrees_with_transformers(family: str, name: str, tmp_path: Path) -> None:
    model = random_model(family_config(family, name), seed=len(name))
    run = DecoderRun(save_plain(model, tmp_path))
    assert run.spec.family == family
    for num_tokens in (1, 150):
        text = clear_text(model, num_tokens)
        reference = reference_logits(model, text)
        for chunk_tokens in (3, 64, 1000):
            assert_agrees(run.in_chunks(text, chunk_tokens), reference)
        assert_agrees(run.by_decode(text), reference)


def test_yarn_reaches_the_index_keys_of_sparse_attention_too(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "factor": 4.0}
    model = random_model(tiny_config(rope_parameters={**rope, "original_max_position_embeddings": 64}), seed=2)
    run, text = DecoderRun(save_plain(model, tmp_path)), clear_text(model, 150)
    assert run.spec.attention.yarn is not None
    reference = reference_logits(model, text)
    assert_agrees(run.in_chunks(text, 64), reference)
    assert_agrees(run.by_decode(text), reference)


def test_rows_of_one_decode_step_are_as_if_alone(tmp_path: Path) -> None:
    model = random_model(family_config("qwen3_5_moe"), seed=1)
    run = DecoderRun(save_plain(model, tmp_path))
    texts = [clear_text(model, 80), clear_text(model, 40)]
    for row, text in enumerate(texts):
        run.in_chunks(text[:-1], 64, row)
    together = run.step([(row, len(text) - 1, text[-1:]) for row, text in enumerate(texts)], is_decode=True)
    for row, text in enumerate(texts):
        assert_agrees(together[row : row + 1], reference_logits(model, text)[-1:])
