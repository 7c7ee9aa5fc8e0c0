"""`--dtype fp32` on a GPU against the CPU, in a file of its own: its kernels are compiled beside the others'."""

import json
from pathlib import Path

import torch

from runtime.options import EngineOptions
from tests.support.demo_scores import demo_texts, logits_of
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver


def test_fp32_is_within_a_thousandth(tmp_path: Path) -> None:
    """Of the largest logit of each position, whether tokens are decoded or read in chunks."""
    on_cpu = EngineDriver(EngineOptions(DEMO_FOLDER, device="cpu", num_slots=96))
    on_cuda = EngineDriver(EngineOptions(DEMO_FOLDER, device="cuda", dtype="fp32", num_slots=96))
    texts = demo_texts(on_cpu, 6, 200)
    for by_decode in (True, False):
        errors = []
        for number, ids in enumerate(texts):
            expected = logits_of(on_cpu, ids, tmp_path / f"cpu{number}.safetensors", False)
            found = logits_of(on_cuda, ids, tmp_path / f"cuda{number}.safetensors", by_decode)
            errors.append((found - expected).abs().amax(-1) / expected.abs().amax(-1))
        error = torch.cat(errors)
        print(json.dumps({"by_decode": by_decode, "largest": float(error.max()), "median": float(error.median())}))
        assert error.max() <= 1e-3
