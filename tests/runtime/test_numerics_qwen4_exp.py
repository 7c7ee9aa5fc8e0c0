"""The decoder against transformers' Qwen4ExpForCausalLM: random tiny fp32 models, every way to feed the tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.support.agreement import (
    BOUND,
    Reference,
    assert_agrees,
    assert_agrees_with_fp32,
    assert_is_exact,
    clear_text,
    reference_of,
)
from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_models import (
    CONFIGS,
    random_model,
    reference_logits,
    save_fused,
    save_nvfp4,
    save_plain,
    strengthen_decay,
    tiny_config,
)

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS = (1, 2, 17, 68, 300)


@dataclass(frozen=True)
class Case:
    """One model, saved, run as chat does and in the check mode, and its reference on one text per length."""

    run: DecoderRun
    exact_run: DecoderRun
    texts: list[list[int]]
    references: list[Reference]

    def pairs(self) -> Iterator[tuple[list[int], Reference]]:
        return zip(self.texts, self.references, strict=True)


@pytest.fixture(scope="module", params=[*CONFIGS, "strong_decay"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(request.param, tmp_path_factory.mktemp(request.param))


def make_case(name: str, folder: Path) -> Case:
    config = tiny_config(**CONFIGS.get(name, {}))
    model = random_model(config, seed=len(name))
    if name == "strong_decay":
        strengthen_decay(model)
    save_plain(model, folder)
    texts = [clear_text(model, length) for length in LENGTHS]
    references = [reference_of(model, text) for text in texts]
    return Case(DecoderRun(folder), DecoderRun(folder, residual_dtype=torch.float64), texts, references)


@pytest.mark.parametrize("chunk_tokens", [1, 3, 7, 64, 1000])
def test_prefill(case: Case, chunk_tokens: int) -> None:
    for text, reference in case.pairs():
        if chunk_tokens > 3 or len(text) < 100:
            assert_agrees_with_fp32(case.run.in_chunks(text, chunk_tokens), reference)
            assert_is_exact(case.exact_run.in_chunks(text, chunk_tokens), reference)


def test_token_by_token_decode(case: Case) -> None:
    for text, reference in case.pairs():
        assert_agrees_with_fp32(case.run.by_decode(text[:150]), reference.until(150))
        assert_is_exact(case.exact_run.by_decode(text[:150]), reference.until(150))


def test_decode_after_prefill_of_several_sequences_in_one_step(case: Case) -> None:
    """Rows of one decode step at different positions: each as if it were alone."""
    texts = [case.texts[4][:150], case.texts[3], case.texts[4][100:180]]
    begins = [100, 20, 63]
    alone = [case.run.in_chunks(text, 1000, row=3) for text in texts]
    for row, (text, begin) in enumerate(zip(texts, begins, strict=True)):
        case.run.in_chunks(text[:begin], 64, row)
    for offset in range(15):
        parts = [(row, begins[row] + offset, [text[begins[row] + offset]]) for row, text in enumerate(texts)]
        together = case.run.step(parts, is_decode=True)
        for row in range(3):
            reference = alone[row][begins[row] + offset]
            assert (together[row] - reference).abs().max() <= BOUND * reference.abs().max()


def test_a_state_checkpoint_and_copied_pages_continue_like_the_original(case: Case) -> None:
    """Another row, with copies of the pages and of the state at position 130, goes on as the first one does."""
    text, run = case.texts[4][:200], case.run
    whole = run.in_chunks(text[:130], 50)
    run.states.copy(0, 1)
    for page in range(3):
        run.pages.copy_page(int(run.page_tables[0][page]), int(run.page_tables[1][page]))
    original = run.step([(0, 130, text[130:])])
    run.states.reset(0)
    run.in_chunks(case.texts[3], 64)
    assert torch.equal(run.step([(1, 130, text[130:])]), original)
    assert whole.shape[0] == 130


@pytest.mark.parametrize("name", ["two_ngram_layers", "odd_sizes"])
def test_nvfp4_experts_agree_with_transformers_on_dequantised_weights(name: str, tmp_path: Path) -> None:
    config = tiny_config(**CONFIGS[name])
    model = save_nvfp4(random_model(config, seed=5), tmp_path)
    run, text = DecoderRun(tmp_path), clear_text(model, 90)
    assert run.spec.weights.expert_format == "nvfp4"
    reference = reference_logits(model, text)
    assert_agrees(run.in_chunks(text, 64), reference)
    assert_agrees(run.by_decode(text), reference)


def test_fused_experts_and_one_table_agree(tmp_path: Path) -> None:
    model = random_model(tiny_config(), seed=6)
    run, text = DecoderRun(save_fused(model, tmp_path)), clear_text(model, 60)
    assert_agrees(run.in_chunks(text, 60), reference_logits(model, text))
