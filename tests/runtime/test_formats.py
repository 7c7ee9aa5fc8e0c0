"""Every family in every checkpoint format: as transformers computes the weights a few-line dequantiser gives."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import ModelCompressor
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.agreement import assert_agrees, clear_text
from tests.support.checkpoint_formats import EXPERTS, FORMATS, Format, fp8_rows, modelopt_nvfp4, save_as
from tests.support.command_line import run_hotslot
from tests.support.compressed_tensors_writer import load_dequantised, save_compressed
from tests.support.decoder_runs import DecoderRun
from tests.support.tiny_families import family_config
from tests.support.tiny_models import (
    dequantise_nvfp4,
    quantise_nvfp4,
    random_model,
    reference_logits,
    tiny_config,
)

FAMILY_NAMES = ("qwen4_exp", "qwen3_5_moe", "qwen3_next", "qwen3_moe")
# Wider than an FP8 block and not a multiple of one.
SIZES: dict[str, Any] = {
    "hidden_size": 160, "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 144,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def model_of(family: str) -> Any:
    if family == "qwen4_exp":
        return random_model(tiny_config(**SIZES, ple_layer_ids=[2], ple_embed_dim=192), seed=11)
    return random_model(family_config(family, **SIZES), seed=11)


def assert_runs_like(meant: Any, folder: Path, expert_format: str) -> None:
    run = DecoderRun(folder)
    assert run.spec.weights.expert_format == expert_format
    text = clear_text(meant, 30)
    assert_agrees(run.in_chunks(text, 20), reference_logits(meant, text))


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("name", FORMATS)
def test_format(name: str, family: str, tmp_path: Path) -> None:
    meant = save_as(model_of(family), family, FORMATS[name], tmp_path)
    assert_runs_like(meant, tmp_path, FORMATS[name].expert_format)


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model.", "model."])
def test_prefix(prefix: str, tmp_path: Path) -> None:
    fmt = FORMATS["modelopt_mixed"]
    meant = save_as(model_of("qwen3_5_moe"), "qwen3_5_moe", fmt, tmp_path, prefix)
    assert_runs_like(meant, tmp_path, "nvfp4")


@cache
def compressible_model(family: str) -> Any:
    """Every width is a multiple of 16: the package packs no other."""
    if family == "qwen4_exp":
        return random_model(
            tiny_config(**SIZES, shared_expert_intermediate_size=48, ple_layer_ids=[2], ple_embed_dim=192), seed=12
        )
    shared = {} if family == "qwen3_moe" else {"shared_expert_intermediate_size": 48}
    return random_model(family_config(family, **SIZES, **shared), seed=12)


@pytest.mark.parametrize("family", FAMILY_NAMES)
@pytest.mark.parametrize("scheme", ["NVFP4", "NVFP4A16", "FP8", "FP8_DYNAMIC", "FP8_BLOCK"])
def test_files_of_the_compressed_tensors_package(scheme: str, family: str, tmp_path: Path) -> None:
    save_compressed(compressible_model(family), scheme, tmp_path)
    meant = load_dequantised(compressible_model(family), tmp_path)
    assert_runs_like(meant, tmp_path, "nvfp4" if scheme.startswith("NVFP4") else "fp8")


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen3_5_moe"])
def test_score_of_files_of_the_compressed_tensors_package(family: str, tmp_path: Path) -> None:
    """Through the command line, against the file's tensors dequantised here and by the package itself."""
    model, folder = compressible_model(family), tmp_path / "model"
    compressed = save_compressed(model, "NVFP4", folder)
    meant = load_dequantised(model, folder)
    assert_package_means_the_same(compressed, meant)
    text = clear_text(meant, 40)
    (tmp_path / "ids.json").write_text(json.dumps(text))
    out = tmp_path / "logits.safetensors"
    ended = run_hotslot(
        "score", "--json", "--model", str(folder), "--ids", str(tmp_path / "ids.json"), "--logits-out", str(out)
    )
    assert (ended.status, ended.err) == (0, "")
    assert_agrees(load_file(out)["logits"], reference_logits(meant, text))


def assert_package_means_the_same(compressed: Any, meant: Any) -> None:
    """The package dequantises to bf16, so within its rounding."""
    ModelCompressor.from_pretrained_model(compressed).decompress_model(compressed)
    num_experts = 0
    for ours, theirs in zip(meant.model.layers, compressed.model.layers, strict=True):
        for expert, (gate_up, down) in enumerate(
            zip(ours.mlp.experts.gate_up_proj, ours.mlp.experts.down_proj, strict=True)
        ):
            linears = theirs.mlp.experts.get_submodule(str(expert))
            unpacked = torch.cat([linears["gate_proj"].weight, linears["up_proj"].weight])
            for own, other in ((gate_up, unpacked), (down, linears["down_proj"].weight)):
                torch.testing.assert_close(own, other.float(), rtol=0.01, atol=0)
            num_experts += 1
    assert num_experts == SIZES["num_hidden_layers"] * SIZES["num_experts"]


def test_layers_may_differ_in_format_and_scales_of_gate_and_up_too(tmp_path: Path) -> None:
    """Layer 0 NVFP4, layer 1 FP8, the others bf16: a slot is as large as the largest record."""
    encoders = {
        rf"layers\.0{EXPERTS}": modelopt_nvfp4,
        rf"layers\.1{EXPERTS}": fp8_rows,
    }
    meant = save_as(model_of("qwen3_moe"), "qwen3_moe", Format(encoders, "bf16", torch.bfloat16), tmp_path)
    assert_runs_like(meant, tmp_path, "bf16")


def test_activation_scales_change_nothing(tmp_path: Path) -> None:
    """Absent, NaN or huge: weights-only arithmetic has no use for them."""
    save_as(model_of("qwen3_moe"), "qwen3_moe", FORMATS["modelopt_all_nvfp4"], tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    expected = DecoderRun(tmp_path).in_chunks(list(range(20)), 20)
    scales = [name for name in tensors if name.endswith("input_scale")]
    for position, name in enumerate(scales):
        if position % 3 == 0:
            del tensors[name]
        else:
            tensors[name] = torch.tensor(float("nan") if position % 3 == 1 else 1e30)
    save_file(tensors, file)
    assert torch.equal(DecoderRun(tmp_path).in_chunks(list(range(20)), 20), expected)


@pytest.mark.parametrize("num_shards", [1, 3, 512])
@pytest.mark.parametrize(
    "stored", ["bf16", "fp8", "nvfp4 compressed-tensors", "nvfp4 ModelOpt", "nvfp4 scale per shard"]
)
def test_ngram_tables(stored: str, num_shards: int, tmp_path: Path) -> None:
    model = model_of("qwen4_exp")
    meant = save_as(model, "qwen4_exp", Format({}, "fp32"), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    stem = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding"
    table = tensors.pop(f"{stem}.weight")
    encoded, values = encode_table(table, stored, stem, num_shards)
    save_file({**tensors, **encoded}, file)
    meant.model.layers[1].ple.ple_embedding.ngram_embedding.weight.data.copy_(values)
    text = clear_text(meant, 30)
    for is_mapped in (False, True):
        run = DecoderRun(tmp_path, is_ngram_table_mapped=is_mapped)
        assert_agrees(run.in_chunks(text, 20), reference_logits(meant, text))


def encode_table(table: Tensor, stored: str, stem: str, num_shards: int) -> tuple[dict[str, Tensor], Tensor]:
    tensors: dict[str, Tensor] = {}
    shards = list(table.tensor_split(num_shards))
    stems = [stem] if num_shards == 1 else [f"{stem}.shard_{i}" for i in range(num_shards)]
    meant = []
    whole_scale = table.abs().max() / (448 if stored == "fp8" else 2688)
    for name, shard in zip(stems, shards, strict=True):
        if stored == "bf16":
            tensors[f"{name}.weight"] = shard.to(torch.bfloat16)
            meant.append(shard.to(torch.bfloat16).float())
        elif stored == "fp8":
            tensors[f"{name}.weight"] = (shard / whole_scale).to(torch.float8_e4m3fn)
            tensors[f"{stem}.weight_scale"] = whole_scale.reshape(1)
            meant.append(tensors[f"{name}.weight"].float() * whole_scale)
        else:
            codes, scales, scale = quantise_nvfp4(shard)
            is_modelopt = stored == "nvfp4 ModelOpt"
            owner = name if stored != "nvfp4 compressed-tensors" else stem
            if owner == stem:
                scale = whole_scale
            tensors[f"{name}.{'weight' if is_modelopt else 'weight_packed'}"] = codes
            tensors[f"{name}.weight_scale"] = scales
            tensors[f"{owner}.{'weight_scale_2' if is_modelopt else 'weight_global_scale'}"] = (
                scale.clone() if is_modelopt else (1 / scale).reshape(1)
            )
            meant.append(dequantise_nvfp4(codes, scales, scale))
    return tensors, torch.cat(meant)
