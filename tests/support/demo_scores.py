"""Logits of the demo model for given tokens, by whichever engine, and texts to take them of."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from runtime.protocol import Score, Scored
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver


def demo_texts(driver: EngineDriver, num_texts: int, num_tokens: int) -> list[tuple[int, ...]]:
    """Token ids of prose, cut into pieces: texts that change with the weights or never, so that near-ties of experts,
    which round-off decides, are the same in every run."""
    prose = "\n".join(path.read_text() for path in (DEMO_FOLDER / "everyday.md", DEMO_FOLDER.parents[1] / "LICENSE"))
    model = driver.engine._model
    assert model is not None
    assert model.tokenizer is not None
    ids = model.tokenizer.encode_text(prose)
    step = (len(ids) - num_tokens) // num_texts
    return [tuple(ids[i * step : i * step + num_tokens]) for i in range(num_texts)]


def logits_of(driver: EngineDriver, ids: tuple[int, ...], path: Path, by_decode: bool) -> torch.Tensor:
    request_id = f"{path.stem}"
    scored = driver.run(Score(request_id, token_ids=ids, by_decode=by_decode, logits_path=str(path)))
    assert isinstance(scored, Scored)
    return load_file(path)["logits"]
