"""`score` through the whole engine: every family, FP8 records and layers of several formats, however tokens are fed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from runtime.options import EngineOptions
from runtime.protocol import Score, Scored
from tests.support.agreement import assert_agrees, clear_text
from tests.support.checkpoint_formats import EXPERTS, FORMATS, Format, fp8_blocks, modelopt_nvfp4, save_as
from tests.support.engine_driver import EngineDriver
from tests.support.tiny_families import FAMILY_CONFIGS, family_config
from tests.support.tiny_models import random_model, reference_logits, save_plain

WAYS: dict[str, dict[str, Any]] = {"whole": {}, "chunks": {"chunk_tokens": 7}, "tokens": {"by_decode": True}}


def assert_scores_agree(meant: Any, folder: Path) -> None:
    driver = EngineDriver(EngineOptions(folder, num_slots=6, num_threads=1, context_tokens=256))
    text = clear_text(meant, 70)
    reference = reference_logits(meant, text)
    expected = reference.double().log_softmax(-1)[:-1].gather(1, torch.tensor(text[1:]).unsqueeze(1)).squeeze(1)
    for name, options in WAYS.items():
        file = folder / f"{name}.safetensors.logits"
        scored = driver.run(Score(name, tuple(text), logits_path=str(file), **options))
        assert isinstance(scored, Scored), scored
        assert_agrees(load_file(file)["logits"], reference)
        assert (torch.tensor(scored.logprobs).double() - expected).abs().max() <= 1e-3
    assert driver.engine._model is not None
    driver.engine._model.experts.check_integrity()


@pytest.mark.parametrize(("family", "name"), FAMILY_CONFIGS)
def test_family(family: str, name: str, tmp_path: Path) -> None:
    model = random_model(family_config(family, name), seed=3)
    assert_scores_agree(model, save_plain(model, tmp_path))


@pytest.mark.parametrize("name", ["fp8_blocks", "compressed_tensors", "nvfp4_fused"])
def test_format(name: str, tmp_path: Path) -> None:
    model = random_model(family_config("qwen3_5_moe", hidden_size=160, moe_intermediate_size=144), seed=4)
    assert_scores_agree(save_as(model, "qwen3_5_moe", FORMATS[name], tmp_path), tmp_path)


def test_a_slot_is_as_large_as_the_largest_record(tmp_path: Path) -> None:
    """Layer 0 NVFP4, layer 1 FP8, the others bf16, all through the same six slots."""
    encoders = {rf"layers\.0{EXPERTS}": modelopt_nvfp4, rf"layers\.1{EXPERTS}": fp8_blocks}
    model = random_model(family_config("qwen3_moe"), seed=5)
    meant = save_as(model, "qwen3_moe", Format(encoders, "bf16", torch.bfloat16), tmp_path)
    assert_scores_agree(meant, tmp_path)
