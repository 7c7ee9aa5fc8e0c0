"""A whole decode step through the kernels gives what torch's ops give, and rows don't mix."""

from pathlib import Path

import pytest
import torch

from runtime.kernels import ops
from runtime.layers import decoder
from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_models import CONFIGS, random_model, random_tokens, save_plain, tiny_config
from tests.support.triton_mode import has_gpu

LENGTHS = (70, 3, 63, 19)
"""Tokens before the step; most are past the budget of sparse attention."""


def prefilled(folder: Path, tokens: list[int], **options: torch.dtype) -> DecoderRun:
    run = DecoderRun(folder, max_tokens=128, **options)  # type: ignore[arg-type]
    for row, length in enumerate(LENGTHS):
        run.states.reset(row)
        run.step([(row, 0, tokens[:length])])
    return run


def like(run: DecoderRun, folder: Path, **options: torch.dtype) -> DecoderRun:
    """Another decoder over a copy of the same pools."""
    other = DecoderRun(folder, max_tokens=128, **options)  # type: ignore[arg-type]
    for pool, source in ((other.pages, run.pages), (other.states, run.states)):
        for name, tensor in vars(source).items():
            if isinstance(tensor, torch.Tensor):
                vars(pool)[name].copy_(tensor)
    return other


@pytest.mark.skipif(has_gpu(), reason="the tiny models of these tests live on the CPU")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("straddling_blocks", {"kv_dtype": torch.float16}),
        pytest.param("two_ngram_layers", {"dtype": torch.bfloat16, "kv_dtype": torch.float16}, marks=pytest.mark.long),
    ],
)
def test_the_step_equals_torchs(
    name: str, options: dict[str, torch.dtype], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_plain(random_model(tiny_config(**{**CONFIGS[name], "hc_lowrank": 16})), tmp_path)
    tokens = random_tokens(tiny_config(), max(LENGTHS) + 1)
    expected = prefilled(tmp_path, tokens, **options)
    monkeypatch.setattr(decoder, "select_ops", lambda device: ops.triton_ops())
    together, alone = (like(expected, tmp_path, **options) for _ in range(2))
    places = [(row, length, tokens[length]) for row, length in enumerate(LENGTHS)]
    logits, wanted = together.decode(places), expected.decode(places)
    assert (logits - wanted).abs().max() <= 1e-4 * wanted.abs().max()
    assert torch.equal(alone.decode(places[2:3]), logits[2:3])
    for name, state in vars(expected.states).items():
        if isinstance(state, torch.Tensor):
            torch.testing.assert_close(vars(together.states)[name], state, rtol=1e-3, atol=1e-3)
