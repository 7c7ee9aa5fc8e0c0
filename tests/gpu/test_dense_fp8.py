"""Dense weights in e4m3 on a GPU: the CPU's numbers, the same bits at every level, and the bytes of the plan."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.execute.overlap import LEVELS
from runtime.execute.streams import DecodeStreams
from runtime.kernels.ops import select_ops
from runtime.memory.budget import plan
from runtime.memory.probe import probe_machine
from runtime.options import EngineOptions
from tests.support.demo_scores import demo_texts, logits_of
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver
from tests.support.synthetic_decode import SyntheticDecode

CUDA = EngineOptions(DEMO_FOLDER, device="cuda", num_slots=96, dense="fp8")
NUM_STEPS = 12


@pytest.mark.parametrize("num_rows", [1, 4])
def test_levels_and_torch_twins(device: torch.device, num_rows: int) -> None:
    cpu, streams = torch.device("cpu"), DecodeStreams(device)
    decode = SyntheticDecode(select_ops(device), device, streams, is_fp8=True)
    found = {level: decode.run(level, num_rows, NUM_STEPS) for level in LEVELS}
    for level in LEVELS:
        assert all(torch.equal(one, other) for one, other in zip(found[level], found["off"], strict=True))
    expected = SyntheticDecode(select_ops(cpu), cpu, is_fp8=True).run("off", num_rows, NUM_STEPS)
    for ours, theirs in zip(found["off"][:NUM_STEPS], expected[:NUM_STEPS], strict=True):
        assert (ours - theirs).abs().max() <= 2e-3 * theirs.abs().max()
    streams.close()


def test_check_mode_is_within_a_thousandth_of_the_cpus(tmp_path: Path) -> None:
    """The same e4m3 numbers and everything else wide: nothing is left that differs."""
    options = replace(CUDA, dtype="fp32")
    on_cuda, on_cpu = EngineDriver(options), EngineDriver(replace(options, device="cpu"))
    for number, ids in enumerate(demo_texts(on_cpu, 3, 200)):
        expected = logits_of(on_cpu, ids, tmp_path / f"cpu{number}.safetensors", False)
        for by_decode in (True, False):
            found = logits_of(on_cuda, ids, tmp_path / "cuda.safetensors", by_decode)
            difference = ((found - expected).abs().amax(-1) / expected.abs().amax(-1)).tolist()
            print({"largest": max(difference), "by_decode": by_decode})
            assert max(difference) <= 1e-3


def test_the_demo_model_keeps_to_the_cpu(tmp_path: Path) -> None:
    """bf16 and fp16 where the CPU has fp32."""
    on_cuda, on_cpu = EngineDriver(CUDA), EngineDriver(replace(CUDA, device="cpu"))
    ours, theirs = (driver.engine._model for driver in (on_cuda, on_cpu))
    assert ours is not None
    assert theirs is not None
    for layers in zip(ours.forward._decoder.layers, theirs.forward._decoder.layers, strict=True):
        one, other = (layer.mixer._in_proj for layer in layers)
        assert torch.equal(one.weight.cpu(), other.weight)
        torch.testing.assert_close(one.scale.cpu(), other.scale)
    for number, ids in enumerate(demo_texts(on_cpu, 4, 200)):
        expected = logits_of(on_cpu, ids, tmp_path / f"cpu{number}.safetensors", False).double().log_softmax(-1)
        for by_decode in (True, False):
            found = logits_of(on_cuda, ids, tmp_path / "cuda.safetensors", by_decode).double().log_softmax(-1)
            divergences = (expected.exp() * (expected - found)).sum(-1)
            print({"mean": float(divergences.mean()), "median": float(divergences.median()), "by_decode": by_decode})
            assert divergences.mean() <= 0.005
            assert divergences.median() <= 1e-4
    planned = plan(ours.spec, probe_machine(CUDA), CUDA).dense_bytes
    # The plan counts the few norms, which stay fp32, as bf16.
    assert ours.forward._decoder.dense_bytes == pytest.approx(planned, rel=0.01)
