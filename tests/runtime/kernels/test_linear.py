"""Products of long chunks as a GPU computes them: x in 16-bit parts. On the CPU, with the same parts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.execute.placement import Placement
from runtime.kernels.torch_ops import linear
from runtime.options import EngineOptions
from tests.support.demo_scores import demo_texts, logits_of
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_is_on_tensor_cores", lambda x: True)


@pytest.mark.usefixtures("in_parts")
def test_products_keep_the_bits_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 24 with small weights, 16 with large ones."""
    x = torch.rand(70, 16, generator=torch.Generator().manual_seed(0)) + 0.5
    weight = torch.zeros(512, 16, dtype=torch.bfloat16)
    weight[:, 3] = 1.0
    expected = x[:, 3:4].expand(-1, 512)
    assert torch.equal(linear.linear(x, weight), expected)
    monkeypatch.setattr(linear, "EXACT_ELEMENTS", weight.numel() - 1)
    found = linear.linear(x, weight)
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=2**-16, atol=0)


def test_three_parts_are_the_number() -> None:
    x = torch.randn(7, 33, generator=torch.Generator().manual_seed(1)) * torch.logspace(-20, 20, 33)
    assert torch.equal(linear.split_parts(x, 3).double().sum(0), x.double())


def test_the_demo_model_reads_as_with_fp32_products(
    in_parts: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With two parts the divergence is 40 times as large, and near-ties between experts fall otherwise."""
    options = EngineOptions(DEMO_FOLDER, device="cpu", num_slots=96, chunk_tokens=256)
    placement = replace(Placement.on_cpu_as_on_cuda(), kv=torch.float32)
    driver = EngineDriver(options, placement)
    (ids,) = demo_texts(driver, 1, 200)
    found = logits_of(driver, ids, tmp_path / "parts.safetensors", False).double().log_softmax(-1)
    monkeypatch.undo()
    expected = logits_of(driver, ids, tmp_path / "whole.safetensors", False).double().log_softmax(-1)
    assert not torch.equal(found, expected)
    assert (expected.exp() * (expected - found)).sum(-1).median() <= 1e-11
