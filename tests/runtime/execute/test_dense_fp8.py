"""Dense weights in e4m3 on the demo model: what it costs in likelihood, that every path computes the same, and that the
plan counts the bytes that are held."""

from pathlib import Path

import pytest
import torch

from runtime.execute.load import load_model
from runtime.execute.placement import Placement
from runtime.memory.budget import plan
from runtime.memory.probe import probe_machine
from runtime.options import EngineOptions
from tests.support.demo_scores import demo_texts, logits_of
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = EngineOptions(DEMO_FOLDER, device="cpu", num_slots=96)
FP8 = EngineOptions(DEMO_FOLDER, device="cpu", num_slots=96, dense="fp8")
NUM_TEXTS, NUM_TOKENS = 6, 200


@pytest.fixture(scope="module")
def in_fp8() -> EngineDriver:
    return EngineDriver(FP8)


@pytest.fixture(scope="module")
def texts(in_fp8: EngineDriver) -> list[tuple[int, ...]]:
    return demo_texts(in_fp8, NUM_TEXTS, NUM_TOKENS)


def log_probabilities(driver: EngineDriver, texts: list[tuple[int, ...]], folder: Path) -> torch.Tensor:
    """fp64 [texts, tokens, vocab]."""
    every = [logits_of(driver, ids, folder / f"{id(driver)}-{n}.safetensors", False) for n, ids in enumerate(texts)]
    return torch.stack(every).double().log_softmax(-1)


def mean_nll(log_probs: torch.Tensor, texts: list[tuple[int, ...]]) -> float:
    targets = torch.tensor(texts)[:, 1:].unsqueeze(-1)
    return float(-log_probs[:, :-1].gather(-1, targets).mean())


def test_text_is_hardly_less_likely(in_fp8: EngineDriver, texts: list[tuple[int, ...]], tmp_path: Path) -> None:
    """1,200 tokens of prose unlike what the model was trained on: 6.882 nats a token become 6.891.

    Rounding is 2.6 % of a weight, as it must be with three bits of mantissa; the mean divergence is 0.058.
    """
    ours = log_probabilities(in_fp8, texts, tmp_path)
    plain = log_probabilities(EngineDriver(PLAIN), texts, tmp_path)
    divergence = float((plain.exp() * (plain - ours)).sum(-1).mean())
    change = mean_nll(ours, texts) - mean_nll(plain, texts)
    print({"plain": mean_nll(plain, texts), "change": change, "mean_kl": divergence})
    assert not torch.equal(ours, plain)
    assert abs(change) < 0.03
    assert divergence < 0.1


def test_the_path_of_a_gpu_computes_the_same(
    in_fp8: EngineDriver, texts: list[tuple[int, ...]], tmp_path: Path
) -> None:
    as_on_cuda = EngineDriver(PLAIN, Placement.on_cpu_as_on_cuda(is_dense_fp8=True))
    ids = texts[0][:60]
    expected = log_probabilities(in_fp8, [ids], tmp_path)[0]
    for by_decode in (False, True):
        found = logits_of(as_on_cuda, ids, tmp_path / "cuda.safetensors", by_decode).double().log_softmax(-1)
        assert float((expected.exp() * (expected - found)).sum(-1).mean()) <= 0.005


@pytest.mark.parametrize("dtype", ["auto", "fp32"])
def test_the_plan_counts_what_is_held(dtype: str) -> None:
    options = EngineOptions(DEMO_FOLDER, device="cpu", num_slots=96, dense="fp8", dtype=dtype)  # type: ignore[arg-type]
    model = load_model(options, (0, 0), lambda event: None)
    planned = plan(model.spec, probe_machine(options), options).dense_bytes
    assert model.forward._decoder.dense_bytes == pytest.approx(planned, rel=2e-3)
