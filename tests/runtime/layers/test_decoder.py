"""The decoder as its callers see it: logit rows, counted bytes, state that moves on, weights that don't belong."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.errors import CheckpointError
from runtime.layers.step import Segment, StepInputs
from runtime.memory.sizes import dense_bytes, residual_params
from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_models import CONFIGS, random_model, random_tokens, save_plain, tiny_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_plain(random_model(tiny_config(), seed=4), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def run(folder: Path) -> DecoderRun:
    return DecoderRun(folder)


def step(run: DecoderRun, tokens: list[int], logit_rows: list[int]) -> torch.Tensor:
    run.states.reset(0)
    segment = Segment(run.page_tables[0], 0, 0, len(tokens))
    inputs = StepInputs(
        torch.tensor(tokens), torch.arange(len(tokens)), (segment,), torch.tensor(logit_rows, dtype=torch.int64), False
    )
    return run.decoder.forward(inputs, run.pages, run.states, run.experts)


def test_only_the_wanted_logits_are_computed(run: DecoderRun) -> None:
    tokens = random_tokens(tiny_config(), 70)
    everything = step(run, tokens, list(range(70)))
    chosen = step(run, tokens, [69, 3])
    assert (chosen - everything[[69, 3]]).abs().max() <= 1e-5 * everything.abs().max()
    assert step(run, tokens, []).shape == (0, 97)


def test_a_step_moves_state_on_though_no_logits_are_wanted(run: DecoderRun) -> None:
    tokens = random_tokens(tiny_config(), 40)
    expected = step(run, tokens, [39])
    step(run, tokens[:39], [])
    assert (run.step([(0, 39, tokens[39:])]) - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_the_same_step_gives_the_same_bits(run: DecoderRun) -> None:
    tokens = random_tokens(tiny_config(), 70)
    assert torch.equal(step(run, tokens, [69]), step(run, tokens, [69]))


@pytest.mark.parametrize("residual_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONFIGS)
def test_dense_bytes_are_the_models_parameters(name: str, residual_dtype: torch.dtype, tmp_path: Path) -> None:
    """Every parameter is held once, most in fp32; only the norms of q and k are spread over their heads."""
    run = DecoderRun(save_plain(random_model(tiny_config(**CONFIGS[name])), tmp_path), residual_dtype=residual_dtype)
    spec = run.spec
    heads = spec.attention.num_heads + spec.attention.num_kv_heads
    spread = len(spec.attention_layers) * (heads - 2) * spec.attention.head_dim
    wider_bytes = residual_params(spec) * (residual_dtype.itemsize - 4)
    assert run.decoder.dense_bytes == 4 * (spec.weights.dense_params + spread) + wider_bytes
    assert run.decoder.ngram_table_bytes == spec.weights.ngram_table_bytes


@pytest.mark.parametrize("residual_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONFIGS)
def test_dense_bytes_in_fp8_are_the_plans(name: str, residual_dtype: torch.dtype, tmp_path: Path) -> None:
    folder = save_plain(random_model(tiny_config(**CONFIGS[name])), tmp_path)
    run = DecoderRun(folder, residual_dtype=residual_dtype, is_fp8=True)
    spec = run.spec
    heads = spec.attention.num_heads + spec.attention.num_kv_heads
    spread = 4 * len(spec.attention_layers) * (heads - 2) * spec.attention.head_dim
    assert run.decoder.dense_bytes == dense_bytes(spec, 4, residual_dtype.itemsize - 4, is_fp8=True) + spread
    assert run.decoder.dense_bytes < DecoderRun(folder, residual_dtype=residual_dtype).decoder.dense_bytes


def test_what_steers_is_never_quantised(folder: Path) -> None:
    """Router, indexer, gates of delta nets and shared experts, n-gram projections, hyper-connections."""
    plain, in_fp8 = DecoderRun(folder), DecoderRun(folder, is_fp8=True)
    for ours, theirs in zip(in_fp8.decoder.layers, plain.decoder.layers, strict=True):
        assert torch.equal(ours.moe._router, theirs.moe._router)
        for projection, original in (
            (ours.moe._shared_in, theirs.moe._shared_in), (ours.mixer._in_proj, theirs.mixer._in_proj)
        ):  # fmt: skip
            assert projection.weight.dtype == torch.uint8
            assert projection.exact is not None
            assert torch.equal(projection.exact, original.weight[-projection.exact.shape[0] :])
        if ours.ngram is not None:
            assert torch.equal(ours.ngram._key_value, theirs.ngram._key_value)
        assert torch.equal(ours.moe_residual._down, theirs.moe_residual._down)
    indexer = in_fp8.spec.indexer
    assert indexer is not None
    sizes = {layer.mixer._in_proj.exact.shape[0] for layer in in_fp8.decoder.layers}
    assert sizes == {2 * 6, (indexer.num_heads + 1) * indexer.head_dim}


def test_a_mapped_table_gives_the_same_bits(folder: Path, run: DecoderRun) -> None:
    tokens = random_tokens(tiny_config(), 70)
    mapped = DecoderRun(folder, is_ngram_table_mapped=True)
    assert torch.equal(step(mapped, tokens, [69]), step(run, tokens, [69]))


@pytest.mark.parametrize("part", ["layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"])
def test_hash_constants_of_another_model_are_refused(part: str, tmp_path: Path) -> None:
    save_plain(random_model(tiny_config()), tmp_path)
    name = f"model.layers.4.ple.ple_embedding.{part}"
    tensors = load_file(tmp_path / "model.safetensors")
    tensors[name][0] += 2
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=part) as caught:
        DecoderRun(tmp_path)
    assert "\n" not in str(caught.value)
