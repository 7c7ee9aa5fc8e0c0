"""What is read from good checkpoints: facts, tensors, experts and n-gram tables in every stored form."""

import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.checkpoint.expert_source import ExpertSource, ExpertTensors
from runtime.checkpoint.facts import open_checkpoint
from runtime.checkpoint.files import CheckpointFiles
from runtime.checkpoint.matrices import Nvfp4Matrix, PlainMatrix
from runtime.checkpoint.tensors import TensorSource
from runtime.errors import CheckpointError
from runtime.layers.ngram_embedding import NgramTable
from tests.support.tiny_models import (
    CONFIGS,
    dequantise_nvfp4,
    random_model,
    save_fused,
    save_nvfp4,
    save_plain,
    tiny_config,
)

TABLE = "model.layers.1.ple.ple_embedding.ngram_embedding"


def experts_of(folder: Path) -> ExpertSource:
    checkpoint = open_checkpoint(folder)
    return ExpertSource(TensorSource(checkpoint.files), checkpoint.spec, checkpoint.names)


def values(expert: ExpertTensors) -> torch.Tensor:
    parts = []
    for matrix in (expert.gate, expert.up, expert.down):
        if isinstance(matrix, Nvfp4Matrix):
            scales = matrix.scales.view(torch.float8_e4m3fn)
            parts.append(dequantise_nvfp4(matrix.codes, scales, matrix.global_scale).flatten())
        else:
            parts.append(matrix.values.float().flatten())
    return torch.cat(parts)


@pytest.mark.parametrize("name", ["two_ngram_layers", "odd_sizes"])
def test_experts_are_the_same_in_every_layout(name: str, tmp_path: Path) -> None:
    model = random_model(tiny_config(**CONFIGS[name]), seed=2)
    dequantised = save_nvfp4(model, tmp_path / "nvfp4")
    sources = {
        "nvfp4": experts_of(tmp_path / "nvfp4"),
        "fused": experts_of(save_fused(dequantised, tmp_path / "fused")),
        "per expert": experts_of(save_plain(dequantised, tmp_path / "plain")),
    }
    bank = dequantised.model.layers[1].mlp.experts
    expected = torch.cat([bank.gate_up_proj[4].flatten(), bank.down_proj[4].flatten()]).detach()
    for source in sources.values():
        assert torch.equal(values(source.expert(1, 4)), expected)


@pytest.mark.parametrize(("dtype", "expert_format"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16")])
def test_facts_are_measured(dtype: torch.dtype, expert_format: str, tmp_path: Path) -> None:
    model = random_model(tiny_config(), seed=2)
    spec = open_checkpoint(save_fused(model, tmp_path, dtype)).spec
    counted = {name: p.numel() for name, p in model.named_parameters() if ".mlp.experts." not in name}
    table = sum(counted.pop(name) for name in list(counted) if "ngram_embedding" in name)
    assert spec.weights.expert_format == expert_format
    assert spec.weights.dense_params == sum(counted.values())
    assert spec.weights.ngram_table_bytes == 2 * table
    assert spec.weights.checkpoint_bytes == (tmp_path / "model.safetensors").stat().st_size


def test_stop_ids_of_the_generation_config_are_added(tmp_path: Path) -> None:
    folder = save_fused(random_model(tiny_config()), tmp_path)
    (folder / "generation_config.json").write_text('{"eos_token_id": [11, 7]}')
    assert open_checkpoint(folder).spec.eos_token_ids == (7, 11)


def test_a_head_in_the_file_wins_over_a_config_that_ties(tmp_path: Path) -> None:
    config = tiny_config(tie_word_embeddings=True)
    file = save_fused(random_model(config), tmp_path) / "model.safetensors"
    assert open_checkpoint(tmp_path).spec.ties_embeddings
    save_file({**load_file(file), "lm_head.weight": torch.zeros(97, 64)}, file)
    assert not open_checkpoint(tmp_path).spec.ties_embeddings


def test_a_packed_head_is_found_too(tmp_path: Path) -> None:
    config = tiny_config(tie_word_embeddings=True)
    file = save_fused(random_model(config), tmp_path) / "model.safetensors"
    head = {
        "lm_head.weight_packed": torch.zeros(97, 32, dtype=torch.uint8),
        "lm_head.weight_scale": torch.ones(97, 4).to(torch.float8_e4m3fn),
        "lm_head.weight_global_scale": torch.ones(1),
    }
    save_file({**load_file(file), **head}, file)
    assert not open_checkpoint(tmp_path).spec.ties_embeddings


def test_views_are_zero_copy_and_survive_released_pages(tmp_path: Path) -> None:
    save_plain(random_model(tiny_config()), tmp_path)
    source = TensorSource(open_checkpoint(tmp_path).files)
    first, again = source.get("lm_head.weight"), source.get("lm_head.weight")
    assert first.data_ptr() == again.data_ptr()
    expected = load_file(tmp_path / "model.safetensors")["lm_head.weight"]
    source.release_pages()
    assert torch.equal(first, expected)
    with pytest.raises(CheckpointError, match=r"lm_tail\.weight is missing"):
        source.get("lm_tail.weight")


def test_an_expert_read_later_than_the_check_still_refuses_bad_scales(tmp_path: Path) -> None:
    save_nvfp4(random_model(tiny_config()), tmp_path)
    source = experts_of(tmp_path)
    assert isinstance(source.expert(0, 0).gate, Nvfp4Matrix)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = "model.language_model.layers.0.mlp.experts.0.gate_proj.weight_scale"
    tensors[name].view(torch.uint8)[0, 0] = 0x7F
    save_file(tensors, file)
    checkpoint = open_checkpoint(tmp_path)
    source = ExpertSource(TensorSource(checkpoint.files), checkpoint.spec, checkpoint.names)
    with pytest.raises(CheckpointError, match="NaN"):
        source.expert(0, 0)


def test_a_plain_expert_with_nan_is_refused_by_name(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    name = "model.layers.1.mlp.experts.down_proj"
    with torch.no_grad():
        model.state_dict()[name][2, 0, 0] = float("nan")
    source = experts_of(save_fused(model, tmp_path))
    source.expert(1, 1)
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.experts\.down_proj has NaN"):
        source.expert(1, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_table_rows_are_gathered_as_stored(dtype: torch.dtype, is_mapped: bool, tmp_path: Path) -> None:
    save_plain(random_model(tiny_config()), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    shards = sorted(name for name in tensors if name.startswith(TABLE))
    for name in shards:
        tensors[name] = tensors[name].to(dtype)
    expected = torch.cat([tensors[name].float() for name in shards])
    if dtype == torch.float8_e4m3fn:
        tensors[f"{TABLE}.weight_scale"] = torch.tensor([0.5], dtype=torch.bfloat16)
        expected *= 0.5
    save_file(tensors, file)
    checkpoint = open_checkpoint(tmp_path)
    table = NgramTable(TensorSource(checkpoint.files), TABLE, torch.device("cpu"), is_mapped)
    ids = torch.tensor([[0, 469, 470], [939, 940, expected.shape[0] - 1]])
    assert torch.equal(table.gather(ids), expected[ids])
    assert table.num_bytes == expected.numel() * dtype.itemsize
    assert checkpoint.spec.ngram is not None


def test_plain_experts_are_views(tmp_path: Path) -> None:
    source = experts_of(save_fused(random_model(tiny_config()), tmp_path))
    first, again = source.expert(2, 3).down, source.expert(2, 3).down
    assert isinstance(first, PlainMatrix)
    assert isinstance(again, PlainMatrix)
    assert first.values.data_ptr() == again.values.data_ptr()


@pytest.mark.skipif(sys.platform != "linux", reason="what is held of a file is read from Linux")
def test_nothing_of_a_mapped_table_is_held(tmp_path: Path) -> None:
    """Not even where the system has all of the file."""
    rows, width = 500_000, 32
    (tmp_path / "config.json").write_text("{}")
    file = tmp_path / "model.safetensors"
    values = torch.arange(rows).unsqueeze(1).expand(rows, width).bfloat16().contiguous()
    save_file({f"{TABLE}.shard_0.weight": values}, file)
    assert len(file.read_bytes()) > rows * width
    table = NgramTable(TensorSource(CheckpointFiles.open(tmp_path)), TABLE, torch.device("cpu"), is_mapped=True)
    for ids in torch.randperm(rows)[:8_000].split(4_000):
        table.announce(ids)
        assert torch.equal(table.gather(ids)[:, 0], ids.bfloat16().float())
    assert str(file) not in Path("/proc/self/maps").read_text()


def test_a_mapped_table_that_is_cut_short_is_named(tmp_path: Path) -> None:
    save_plain(random_model(tiny_config()), tmp_path)
    files = open_checkpoint(tmp_path).files
    table = NgramTable(TensorSource(files), TABLE, torch.device("cpu"), is_mapped=True)
    os.truncate(tmp_path / "model.safetensors", 8)
    with pytest.raises(CheckpointError, match=r"ngram_embedding\.shard_0\.weight can't be read \(it has become"):
        table.gather(torch.tensor([0]))
