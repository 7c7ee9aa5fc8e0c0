"""Keys and values in host memory, read by the kernels where they lie: no bit of any answer changes."""

from dataclasses import replace
from pathlib import Path

import torch

from runtime.options import EngineOptions
from runtime.protocol import ChatMessage
from tests.support.demo_scores import logits_of
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver

CUDA = EngineOptions(DEMO_FOLDER, device="cuda", num_slots=96, context_tokens=8192)


def test_no_bit_changes(tmp_path: Path) -> None:
    on_device, on_host = EngineDriver(CUDA), EngineDriver(replace(CUDA, kv="host"))
    model = on_host.engine._model
    assert model is not None
    assert model.forward._pages.is_kv_on_host
    assert not model.forward._pages.keys.is_cuda
    # Longer than the indexer's budget, so that blocks are chosen.
    for num_tokens, by_decode in ((3000, False), (300, True)):
        ids = tuple(100 + (11 * i) % 5000 for i in range(num_tokens))
        found = [logits_of(driver, ids, tmp_path / "x.safetensors", by_decode) for driver in (on_device, on_host)]
        assert torch.equal(*found)
    question = (ChatMessage("user", "word " * 2500 + "Tell me a short story about a lighthouse."),)
    answers = [driver.ask("long", question, max_tokens=40).generated_ids for driver in (on_device, on_host)]
    assert answers[0] == answers[1]
