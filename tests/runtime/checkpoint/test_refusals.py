"""Bad checkpoints: one line that names the file, the tensor where there is one, and what to do."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.checkpoint.expert_source import ExpertSource
from runtime.checkpoint.facts import open_checkpoint, read_facts
from runtime.checkpoint.tensors import TensorSource
from runtime.errors import CheckpointError
from runtime.layers.decoder import Decoder
from tests.support.tiny_models import random_model, save_nvfp4, save_plain, tiny_config

EXPERT = "model.language_model.layers.0.mlp.experts.3.up_proj"
TABLE = "model.layers.1.ple.ple_embedding.ngram_embedding"
Breakage = Callable[[Path], None]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    config = {"num_hidden_layers": 4, "ple_layer_ids": [2], "num_experts": 4, "num_experts_per_tok": 2}
    model = random_model(tiny_config(**config), seed=1)
    folders = {name: tmp_path_factory.mktemp(name) for name in ("plain", "sharded", "nvfp4")}
    save_plain(model, folders["plain"])
    model.save_pretrained(folders["sharded"], max_shard_size="200KB")
    save_nvfp4(model, folders["nvfp4"])
    return folders


@pytest.fixture
def copy_of(originals: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for file in originals[name].iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        return folder

    return copy


def open_and_read(folder: Path) -> None:
    """What loading does to the checkpoint: open it, then read every expert and the dense weights."""
    checkpoint = open_checkpoint(folder)
    source = TensorSource(checkpoint.files)
    Decoder.build(checkpoint.spec, source, checkpoint.names, "cpu", torch.float32)
    experts = ExpertSource(source, checkpoint.spec, checkpoint.names)
    for layer in range(checkpoint.spec.num_layers):
        for expert in range(checkpoint.spec.moe.num_experts):
            experts.expert(layer, expert)


def edit_tensors(edit: Callable[[dict[str, torch.Tensor]], Any]) -> Breakage:
    def apply(folder: Path) -> None:
        file = folder / "model.safetensors"
        tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
        edit(tensors)
        save_file(tensors, file)

    return apply


def edit_config(**values: Any) -> Breakage:
    def apply(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return apply


def write(name: str, content: bytes) -> Breakage:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return apply


def remove(name: str) -> Breakage:
    return lambda folder: (folder / name).unlink()


def truncate(name: str) -> Breakage:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:-100])

    return apply


def replace(name: str, tensor: torch.Tensor) -> Breakage:
    return edit_tensors(lambda tensors: tensors.update({name: tensor}))


def drop(name: str) -> Breakage:
    return edit_tensors(lambda tensors: tensors.pop(name))


def drop_all(part: str) -> Breakage:
    return edit_tensors(lambda tensors: [tensors.pop(name) for name in list(tensors) if part in name])


def edit_text_config(**values: Any) -> Breakage:
    def apply(folder: Path) -> None:
        file = folder / "config.json"
        config = json.loads(file.read_text())
        config["text_config"].update(values)
        file.write_text(json.dumps(config))

    return apply


def one_expert_in_fp8(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[f"{EXPERT}.weight_scale_2"]
    tensors[f"{EXPERT}.weight"] = torch.ones(32, 64).to(torch.float8_e4m3fn)
    tensors[f"{EXPERT}.weight_scale"] = torch.tensor(1.0)


def reciprocal(value: float | None) -> Callable[[dict[str, torch.Tensor]], None]:
    """The expert as compressed-tensors stores it."""

    def apply(tensors: dict[str, torch.Tensor]) -> None:
        tensors[f"{EXPERT}.weight_packed"] = tensors.pop(f"{EXPERT}.weight")
        del tensors[f"{EXPERT}.weight_scale_2"]
        if value is not None:
            tensors[f"{EXPERT}.weight_global_scale"] = torch.tensor([value])

    return apply


def head_in_fp8(scale: float | None) -> Callable[[dict[str, torch.Tensor]], None]:
    def apply(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.float8_e4m3fn)
        if scale is not None:
            tensors["lm_head.weight_scale"] = torch.tensor(scale)

    return apply


def head_in_mxfp8(tensors: dict[str, torch.Tensor]) -> None:
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.float8_e4m3fn)
    tensors["lm_head.weight_scale"] = torch.full((97, 2), 127, dtype=torch.uint8)


def nan_in_fp8_head(tensors: dict[str, torch.Tensor]) -> None:
    head_in_fp8(1.0)(tensors)
    tensors["lm_head.weight"].view(torch.uint8)[3, 5] = 0xFF


def foreign(suffix: str, dtype: torch.dtype, method: str = "") -> Breakage:
    def apply(folder: Path) -> None:
        replace(f"model.layers.0.linear_attn.out_proj{suffix}", torch.zeros(2, 2, dtype=dtype))(folder)
        if method:
            edit_config(quantization_config={"quant_method": method})(folder)

    return apply


def only_gguf(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / "model-Q4_K_M.gguf").write_bytes(b"GGUF")


def nan_block(tensors: dict[str, torch.Tensor]) -> None:
    tensors[f"{EXPERT}.weight_scale"].view(torch.uint8)[2, 1] = 0xFF


def move_in_index(folder: Path) -> None:
    file = folder / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    files = sorted(set(index["weight_map"].values()))
    index["weight_map"]["lm_head.weight"] = next(f for f in files if f != index["weight_map"]["lm_head.weight"])
    file.write_text(json.dumps(index))


def overlap_tensors(folder: Path) -> None:
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    norms = [name for name in header if name.endswith("hc_norm.weight")]
    header[norms[1]]["data_offsets"] = header[norms[0]]["data_offsets"]
    new = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(new)) + new + raw[8 + size :])


def make_pipe(name: str) -> Breakage:
    def break_it(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return break_it


SHARD = "model-00002-of-00008.safetensors"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"

CASES: dict[str, tuple[str, Breakage, list[str]]] = {
    "missing shard": ("sharded", remove(SHARD), [SHARD, "missing", "download"]),
    "truncated shard": ("sharded", truncate(SHARD), [SHARD, "truncated", "tensor model.", "again"]),
    "truncated file": ("plain", truncate(WEIGHTS), [WEIGHTS, "truncated", "tensor model.", "again"]),
    "empty file": ("plain", write(WEIGHTS, b""), [WEIGHTS, "cut short"]),
    "header longer than file": ("plain", write(WEIGHTS, struct.pack("<Q", 10**12) + b"{}"), [WEIGHTS, "header of"]),
    "header not JSON": ("plain", write(WEIGHTS, struct.pack("<Q", 4) + b"\xff{{{"), [WEIGHTS, "not JSON"]),
    "header entry nonsense": (
        "plain",
        write(WEIGHTS, struct.pack("<Q", 24) + b'{"w":{"dtype":"F32"}}   '),
        [WEIGHTS, "tensor w", "no sense"],
    ),
    "overlapping tensors": ("plain", overlap_tensors, [WEIGHTS, "hc_norm.weight", "same bytes"]),
    "LFS pointer": ("plain", write(WEIGHTS, LFS), [WEIGHTS, "Git-LFS pointer", "git lfs pull"]),
    "LFS shard": ("sharded", write(SHARD, LFS), [SHARD, "Git-LFS pointer", "git lfs pull"]),
    "LFS config": ("plain", write("config.json", LFS), ["config.json", "Git-LFS pointer"]),
    "no weights": ("plain", remove(WEIGHTS), ["no weights", "download"]),
    "no config": ("plain", remove("config.json"), ["config.json", "missing"]),
    "config not JSON": ("plain", write("config.json", b"{ vocab: 3"), ["config.json", "not JSON", "line 1"]),
    "config binary": ("plain", write("config.json", b"\xff\xfe\x00"), ["config.json", "not JSON"]),
    "config with an endless number": (
        "plain",
        write("config.json", b'{"vocab_size": ' + b"9" * 5000 + b"}"),
        ["config.json", "not JSON"],
    ),
    "config a pipe": ("plain", make_pipe("config.json"), ["config.json", "not an ordinary file"]),
    "weights a pipe": ("plain", make_pipe(WEIGHTS), [WEIGHTS, "not an ordinary file"]),
    "config a list": ("plain", write("config.json", b"[]"), ["config.json", "not an object"]),
    "unknown architecture": ("plain", edit_config(model_type="llama"), ["model_type", "llama", "qwen4_exp"]),
    "index not JSON": ("sharded", write(INDEX, b"nope"), [INDEX, "not JSON"]),
    "index leaves the folder": (
        "sharded",
        write(INDEX, b'{"weight_map": {"w": "../w.safetensors"}}'),
        [INDEX, "tensor w", "not a file of the folder"],
    ),
    "index names another shard": ("sharded", move_in_index, ["lm_head.weight", "not in it"]),
    "wrong shape": (
        "plain",
        replace("lm_head.weight", torch.zeros(97, 65)),
        ["lm_head.weight", "[97, 65]", "[97, 64]"],
    ),
    "wrong expert shape": (
        "nvfp4",
        replace(f"{EXPERT}.weight", torch.zeros(32, 16, dtype=torch.uint8)),
        [f"{EXPERT}.weight", "[32, 16]", "[32, 32]"],
    ),
    "wrong dtype": (
        "plain",
        replace("lm_head.weight", torch.zeros(97, 64, dtype=torch.int32)),
        ["lm_head.weight", "I32", "BF16"],
    ),
    "wrong expert dtype": (
        "nvfp4",
        replace(f"{EXPERT}.weight", torch.zeros(32, 64)),
        [f"{EXPERT}.weight is fp32", "layer 0 are nvfp4"],
    ),
    "wrong scale dtype": (
        "nvfp4",
        replace(f"{EXPERT}.weight_scale", torch.ones(32, 4)),
        [f"{EXPERT}.weight_scale", "F32", "F8_E4M3"],
    ),
    "missing tensor": ("plain", drop("model.layers.0.linear_attn.A_log"), ["layers.0.linear_attn.A_log", "missing"]),
    "missing expert": ("nvfp4", drop(f"{EXPERT}.weight"), [f"{EXPERT}.weight", "missing"]),
    "missing scale": ("nvfp4", drop(f"{EXPERT}.weight_scale"), [f"{EXPERT}.weight_scale", "missing"]),
    "missing global scale": ("nvfp4", drop(f"{EXPERT}.weight_scale_2"), [f"{EXPERT}.weight_scale_2", "missing"]),
    "scale one row short": (
        "nvfp4",
        replace(f"{EXPERT}.weight_scale", torch.ones(31, 4).to(torch.float8_e4m3fn)),
        [f"{EXPERT}.weight_scale", "[31, 4]", "[32, 4]"],
    ),
    "scale one column long": (
        "nvfp4",
        replace(f"{EXPERT}.weight_scale", torch.ones(32, 5).to(torch.float8_e4m3fn)),
        [f"{EXPERT}.weight_scale", "[32, 5]", "[32, 4]"],
    ),
    "an expert in another format": (
        "nvfp4",
        edit_tensors(one_expert_in_fp8),
        [f"{EXPERT}.weight is fp8", "layer 0 are nvfp4", "one format per layer"],
    ),
    "an expert of which nothing is left": (
        "nvfp4",
        drop_all(".layers.2.mlp.experts.1."),
        ["expert 1 of layer 2 is missing", "asks for 4", "incomplete"],
    ),
    "a layer of which nothing is left": ("nvfp4", drop_all(".layers.2."), ["layer 2 is missing", "asks for 4"]),
    "more layers in the config": (
        "nvfp4",
        edit_text_config(num_hidden_layers=5, layer_types=None),
        ["layer 4 is missing"],
    ),
    "more experts in the config": ("nvfp4", edit_text_config(num_experts=5), ["mlp.gate.weight", "[4, 64]", "[5, 64]"]),
    "a narrower config": (
        "nvfp4",
        edit_text_config(moe_intermediate_size=16),
        ["experts.0.gate_proj.weight", "[16, 32]"],
    ),
    "reciprocal scale of zero": ("nvfp4", edit_tensors(reciprocal(0.0)), [f"{EXPERT}.weight_global_scale", "is 0.0"]),
    "reciprocal scale infinite": (
        "nvfp4",
        edit_tensors(reciprocal(float("inf"))),
        [f"{EXPERT}.weight_global_scale", "is inf"],
    ),
    "reciprocal scale NaN": (
        "nvfp4",
        edit_tensors(reciprocal(float("nan"))),
        [f"{EXPERT}.weight_global_scale", "is nan"],
    ),
    "reciprocal scale missing": (
        "nvfp4",
        edit_tensors(reciprocal(None)),
        [f"{EXPERT}.weight_global_scale", "missing"],
    ),
    "FP8 scale NaN": ("nvfp4", edit_tensors(head_in_fp8(float("nan"))), ["lm_head.weight_scale", "is nan"]),
    "FP8 scale negative": ("nvfp4", edit_tensors(head_in_fp8(-1.0)), ["lm_head.weight_scale", "is -1.0"]),
    "FP8 NaN": ("nvfp4", edit_tensors(nan_in_fp8_head), ["lm_head.weight has NaN"]),
    "FP8 without scale": ("nvfp4", edit_tensors(head_in_fp8(None)), ["lm_head.weight_scale", "missing"]),
    "GPTQ": ("plain", foreign(".qweight", torch.int32, "gptq"), ["is a GPTQ checkpoint", "NVFP4", "RadixArk"]),
    "AWQ": ("plain", foreign(".qweight", torch.int32, "awq"), ["is an AWQ checkpoint", "NVFP4", "RadixArk"]),
    "GPTQ or AWQ": ("plain", foreign(".qweight", torch.int32), ["is a GPTQ or AWQ checkpoint", "RadixArk"]),
    "bitsandbytes": ("plain", foreign(".weight.absmax", torch.float32), ["is a bitsandbytes checkpoint", "NVFP4"]),
    "EXL3": ("plain", foreign(".trellis", torch.int16), ["is an EXL3 checkpoint", "NVFP4"]),
    "INT4": ("plain", foreign(".weight_packed", torch.int32), ["is an INT4 (compressed-tensors", "NVFP4"]),
    "ModelOpt AWQ": (
        "nvfp4",
        replace(f"{EXPERT}.pre_quant_scale", torch.ones(64)),
        ["is an AWQ (ModelOpt, with pre_quant_scale) checkpoint", "get an NVFP4 checkpoint", "RadixArk"],
    ),
    "MXFP8": (
        "nvfp4",
        edit_tensors(head_in_mxfp8),
        ["is an MXFP8 checkpoint", "get an NVFP4 checkpoint", "RadixArk"],
    ),
    "GGUF": ("plain", only_gguf, ["is a GGUF checkpoint", "NVFP4"]),
    "NaN block scale": ("nvfp4", edit_tensors(nan_block), [f"{EXPERT}.weight_scale", "NaN at [2, 1]"]),
    "NaN global scale": (
        "nvfp4",
        replace(f"{EXPERT}.weight_scale_2", torch.tensor(float("nan"))),
        [f"{EXPERT}.weight_scale_2", "nan"],
    ),
    "infinite global scale": (
        "nvfp4",
        replace(f"{EXPERT}.weight_scale_2", torch.tensor(float("inf"))),
        [f"{EXPERT}.weight_scale_2", "inf"],
    ),
    "zero global scale": (
        "nvfp4",
        replace(f"{EXPERT}.weight_scale_2", torch.tensor(0.0)),
        [f"{EXPERT}.weight_scale_2", "0.0"],
    ),
    "zero block scales": (
        "nvfp4",
        replace(f"{EXPERT}.weight_scale", torch.zeros(32, 4).to(torch.float8_e4m3fn)),
        [f"{EXPERT}.weight_scale", "only zeros"],
    ),
    "missing table shard": ("plain", drop(f"{TABLE}.shard_2.weight"), [f"{TABLE}.shard_1.weight", "shard is missing"]),
    "missing table": ("plain", drop(f"{TABLE}.shard_0.weight"), [f"{TABLE}.shard_0.weight", "missing"]),
    "fp8 table without scale": (
        "plain",
        edit_tensors(
            lambda tensors: tensors.update(
                {n: t.to(torch.float8_e4m3fn) for n, t in tensors.items() if n.startswith(TABLE)}
            )
        ),
        [f"{TABLE}.weight_scale", "missing"],
    ),
    "unknown tensor": (
        "plain",
        replace("model.layers.0.self_attn.bias", torch.zeros(3)),
        ["model.layers.0.self_attn.bias", "no place"],
    ),
    "name with an escape sequence": (
        "plain",
        replace("model.\x1b]52;c;aGk=\x07.weight", torch.zeros(3)),
        [WEIGHTS, r"\x1b]52", "no model has such names"],
    ),
    "one more layer": (
        "plain",
        replace("model.layers.4.mlp.gate.weight", torch.zeros(4, 64)),
        ["model.layers.4.mlp.gate.weight", "no place"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_by_name_in_one_line(name: str, copy_of: Callable[[str], Path]) -> None:
    original, break_it, expected = CASES[name]
    folder = copy_of(original)
    break_it(folder)
    with pytest.raises(CheckpointError) as caught:
        open_and_read(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    for part in expected:
        assert part in message


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such model folder"):
        open_checkpoint(tmp_path / "nowhere")


def test_untouched_checkpoints_open(originals: dict[str, Path]) -> None:
    for name, folder in originals.items():
        assert read_facts(folder).weights.expert_format == ("nvfp4" if name == "nvfp4" else "fp32")


def test_vision_and_multi_token_prediction_are_skipped(copy_of: Callable[[str], Path]) -> None:
    folder = copy_of("nvfp4")
    extra = {
        "model.visual.blocks.0.weight": torch.zeros(3),
        "model.visual.blocks.0.attn.qkv.weight_scale": torch.zeros(3, 2, dtype=torch.uint8),
        "mtp.layers.0.mlp.gate.weight": torch.zeros(2),
        "mtp.layers.0.self_attn.q_proj.pre_quant_scale": torch.ones(2),
        "model.language_model.layers.3.self_attn.k_proj.k_scale": torch.ones(1),
        "model.language_model.layers.3.self_attn.v_proj.output_scale": torch.ones(1),
        "model.language_model.layers.3.self_attn.kv_scale": torch.ones(1),
        "model.language_model.layers.3.self_attn.prob_scale": torch.ones(1),
    }
    edit_tensors(lambda tensors: tensors.update(extra))(folder)
    assert open_checkpoint(folder).spec == read_facts(folder)


def test_a_gguf_file_is_refused_as_such(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match="is a GGUF checkpoint"):
        open_checkpoint(file)


@pytest.mark.parametrize(
    ("where", "claim", "expected"),
    [
        ("config.json", {"quant_method": "fp8"}, "config.json says fp8, but the experts are nvfp4"),
        ("config.json", {"quant_method": "gptq"}, "config.json says gptq"),
        ("config.json", {"quant_method": "compressed-tensors", "format": "float-quantized"}, "config.json says fp8"),
        ("hf_quant_config.json", {"quant_algo": "FP8"}, "hf_quant_config.json says fp8"),
        ("config.json", {"quant_method": "modelopt", "quant_algo": "NVFP4"}, None),
        ("config.json", {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, None),
        ("hf_quant_config.json", {"quant_algo": "W4A16_NVFP4"}, None),
        ("hf_quant_config.json", {"kv_cache_quant_algo": "FP8"}, None),
    ],
)
def test_tensors_win_over_a_config_that_names_another_format(
    where: str, claim: dict[str, str], expected: str | None, copy_of: Callable[[str], Path]
) -> None:
    folder = copy_of("nvfp4")
    if where == "config.json":
        edit_config(quantization_config=claim)(folder)
    else:
        (folder / where).write_text(json.dumps({"quantization": claim}))
    checkpoint = open_checkpoint(folder)
    assert checkpoint.spec.weights.expert_format == "nvfp4"
    assert (checkpoint.notice is None) if expected is None else (expected in str(checkpoint.notice))
