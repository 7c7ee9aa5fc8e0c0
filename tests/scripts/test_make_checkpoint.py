"""Made checkpoints: counts and bytes of published repositories, from the plan of names; tiny ones load and run."""

from pathlib import Path

import pytest
import torch

from runtime.checkpoint.facts import open_checkpoint
from scripts.checkpoints.geometries import PUBLISHED
from scripts.checkpoints.plan import plan_tensors
from scripts.checkpoints.storage import FORMATS
from scripts.make_checkpoint import make_checkpoint
from tests.support.decoder_runs import DecoderRun


@pytest.mark.parametrize(
    ("family", "format_name", "num_tensors", "num_bytes"),
    [
        # RadixArk/Qwen3.8-Flash-Next-NVFP4: 48 layers, vision tower and MTP.
        ("qwen4_exp", "modelopt", 296_475, 135_156_121_594),
        # nvidia/Qwen3.6-35B-A3B-NVFP4.
        ("qwen3_5_moe", "modelopt-mixed", 124_468, None),
    ],
)
def test_published_counts(family: str, format_name: str, num_tensors: int, num_bytes: int | None) -> None:
    tensors = list(plan_tensors(family, format_name, "geometry"))
    assert len(tensors) == len({tensor.name for tensor in tensors}) == num_tensors
    assert num_bytes is None or sum(tensor.num_bytes for tensor in tensors) == num_bytes


def test_fewer_layers_leave_the_rest_as_it_is() -> None:
    cut = {tensor.name: tensor for tensor in plan_tensors("qwen4_exp", "modelopt", "geometry", num_layers=4)}
    whole = {tensor.name: tensor for tensor in plan_tensors("qwen4_exp", "modelopt", "geometry")}
    assert cut.items() <= whole.items()
    assert len(cut) < len(whole) / 10


@pytest.mark.parametrize("family", PUBLISHED)
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_tiny_one_loads_and_runs(family: str, format_name: str, tmp_path: Path) -> None:
    make_checkpoint(family, format_name, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.notice is None
    assert checkpoint.spec.family == family
    logits = DecoderRun(tmp_path).in_chunks(list(range(12)), 12)
    assert bool(logits.isfinite().all())
    assert float(logits.std()) > 0


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_checkpoint("qwen3_moe", "modelopt", tmp_path / name, seed=seed)
    a, b, c = ((tmp_path / name / "model-00001-of-00001.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_weights_of_a_made_checkpoint_are_small(tmp_path: Path) -> None:
    make_checkpoint("qwen3_moe", "compressed-tensors", tmp_path)
    run = DecoderRun(tmp_path)
    assert float(run.in_chunks([1, 2, 3], 3).abs().max()) < 1e4
    assert torch.is_inference_mode_enabled() is False
