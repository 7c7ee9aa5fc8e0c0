"""Checkpoint folders in every format found in the wild, written from a transformers model.

An encoder turns one matrix into the tensors a writer would store under its name, and into the matrix that those tensors
mean by a dequantiser of a few lines, which shares nothing with the runtime's. `save_as` returns the model that has the
dequantised weights.
"""

import copy
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.support.tiny_models import dequantise_nvfp4, quantise_nvfp4

Encoded = tuple[dict[str, Tensor], Tensor]
"""Tensors by suffix ('.weight', …), and the matrix they mean, fp32."""
Encoder = Callable[[Tensor], Encoded]

NESTED = {"qwen4_exp": "qwen4_exp", "qwen3_5_moe": "qwen3_5_moe"}
EXPERTS = r"\.mlp\.experts\."
ATTENTION = r"\.self_attn\.[qkvo]_proj$"
DELTA_NET = r"\.linear_attn\.(in_proj_qkvz|in_proj_qkv|in_proj_z|out_proj)$"
SHARED = r"\.shared_expert\."
HEAD = r"lm_head$"


def modelopt_nvfp4(matrix: Tensor) -> Encoded:
    codes, scales, scale = quantise_nvfp4(matrix)
    tensors = {".weight": codes, ".weight_scale": scales, ".weight_scale_2": scale, ".input_scale": torch.tensor(0.01)}
    return tensors, dequantise_nvfp4(codes, scales, scale)


def modelopt_w4a16(matrix: Tensor) -> Encoded:
    tensors, meant = modelopt_nvfp4(matrix)
    del tensors[".input_scale"]
    return tensors, meant


def modelopt_fp8(matrix: Tensor) -> Encoded:
    scale = matrix.abs().max() / 448
    values = (matrix / scale).to(torch.float8_e4m3fn)
    nonsense = torch.tensor(float("nan"))
    return {".weight": values, ".weight_scale": scale, ".input_scale": nonsense}, values.float() * scale


def fp8_rows(matrix: Tensor) -> Encoded:
    scales = (matrix.abs().amax(1, keepdim=True) / 448).to(torch.bfloat16)
    values = (matrix / scales.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {".weight": values, ".weight_scale": scales}, values.float() * scales.float()


def fp8_blocks(matrix: Tensor) -> Encoded:
    rows, columns = matrix.shape
    scales = torch.zeros(-(-rows // 128), -(-columns // 128))
    values, meant = torch.zeros(rows, columns).to(torch.float8_e4m3fn), torch.zeros(rows, columns)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            block = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
            scales[i, j] = matrix[block].abs().max() / 448
            values[block] = (matrix[block] / scales[i, j]).to(torch.float8_e4m3fn)
            meant[block] = values[block].float() * scales[i, j]
    return {".weight": values, ".weight_scale_inv": scales}, meant


def compressed_tensors_nvfp4(matrix: Tensor) -> Encoded:
    """By hand; the global scale is the reciprocal, and each matrix has its own."""
    codes, scales, scale = quantise_nvfp4(matrix)
    reciprocal = (1 / scale).reshape(1)
    tensors = {".weight_packed": codes, ".weight_scale": scales, ".weight_global_scale": reciprocal}
    return {**tensors, ".input_global_scale": torch.tensor([3.5])}, dequantise_nvfp4(codes, scales, 1 / reciprocal)


def plain(dtype: torch.dtype) -> Encoder:
    return lambda matrix: ({".weight": matrix.to(dtype)}, matrix.to(dtype).float())


@dataclass(frozen=True)
class Format:
    """Which encoder takes which matrices, by the first pattern found in a name; the others are stored as `rest`."""

    encoders: dict[str, Encoder]
    expert_format: str
    rest: torch.dtype = torch.float32
    fuses: str = ""
    """Not '': experts in banks, their parts joined by this; with '_' gate and up are quantised as one matrix."""
    quantization_config: dict[str, Any] = field(default_factory=dict)
    hf_quant_config: dict[str, Any] = field(default_factory=dict)


_MODELOPT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
FORMATS = {
    "modelopt_nvfp4": Format({EXPERTS: modelopt_nvfp4}, "nvfp4", hf_quant_config=_MODELOPT),
    "modelopt_all_nvfp4": Format(
        {f"{EXPERTS}|{ATTENTION}": modelopt_nvfp4}, "nvfp4",
        quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"}, hf_quant_config=_MODELOPT,
    ),
    "modelopt_w4a16": Format(
        {f"{EXPERTS}|{SHARED}|{HEAD}": modelopt_w4a16}, "nvfp4",
        hf_quant_config={"quantization": {"quant_algo": "W4A16_NVFP4", "group_size": 16}},
    ),
    "modelopt_mixed": Format(
        {f"{EXPERTS}|{SHARED}|{HEAD}": modelopt_nvfp4, f"{ATTENTION}|{DELTA_NET}": modelopt_fp8}, "nvfp4",
        quantization_config={"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
    ),
    "compressed_tensors": Format(
        {f"{EXPERTS}|{ATTENTION}|{SHARED}": compressed_tensors_nvfp4}, "nvfp4",
        quantization_config={"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
    ),
    "fp8_tensor": Format(
        {f"{EXPERTS}|{ATTENTION}|{DELTA_NET}|{SHARED}": modelopt_fp8}, "fp8",
        hf_quant_config={"quantization": {"quant_algo": "FP8"}},
    ),
    "fp8_rows": Format(
        {f"{EXPERTS}|{ATTENTION}|{DELTA_NET}|{SHARED}": fp8_rows}, "fp8",
        quantization_config={"quant_method": "compressed-tensors", "format": "float-quantized"},
    ),
    "fp8_blocks": Format(
        {f"{EXPERTS}|{ATTENTION}|{DELTA_NET}|{SHARED}": fp8_blocks}, "fp8",
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]},
    ),
    "bf16": Format({}, "bf16", rest=torch.bfloat16),
    "fp16_fused": Format({}, "fp16", rest=torch.float16, fuses="."),
    "nvfp4_fused": Format({EXPERTS: modelopt_nvfp4}, "nvfp4", fuses="_"),
    "compressed_tensors_fused": Format({EXPERTS: compressed_tensors_nvfp4}, "nvfp4", fuses="."),
    "fp8_blocks_fused": Format({EXPERTS: fp8_blocks}, "fp8", fuses="_"),
    "fp8_tensor_fused": Format({EXPERTS: modelopt_fp8}, "fp8", fuses="_"),
}  # fmt: skip


def save_as(model: Any, family: str, fmt: Format, folder: Path, prefix: str | None = None) -> Any:
    """Write the folder; returns the transformers model of the weights that were stored."""
    meant = copy.deepcopy(model)
    tensors: dict[str, Tensor] = {}
    for name, value in meant.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if re.search(r"experts\.(gate_up|down)_proj$", name):
            for expert, bank in enumerate(value):
                bank.copy_(_put_expert(tensors, name, expert, bank, fmt))
        elif value.is_floating_point():
            encoded, stored = _encoder(name.removesuffix(".weight"), value, fmt)(value)
            value.copy_(stored)
            suffixed = name.endswith(".weight")
            for suffix, tensor in encoded.items():
                tensors[name.removesuffix(".weight") + suffix if suffixed else name] = tensor
        else:
            tensors[name] = value
    if fmt.fuses:
        tensors = _fuse(tensors, model.config.num_experts, fmt.fuses)
    if prefix is None:
        prefix = "model.language_model." if family in NESTED else "model."
    write_folder(
        model.config, family, {_renamed(name, prefix): tensor for name, tensor in tensors.items()}, folder, fmt
    )
    return meant


def write_folder(config: Any, family: str, tensors: dict[str, Tensor], folder: Path, fmt: Format | None = None) -> None:
    """config.json (nested where the family's is), the weights, and what the format says about itself."""
    values = config.to_dict()
    if family in NESTED:
        values = {"model_type": family, "tie_word_embeddings": config.tie_word_embeddings, "text_config": values}
    if fmt is not None and fmt.quantization_config:
        values["quantization_config"] = fmt.quantization_config
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    if fmt is not None and fmt.hf_quant_config:
        (folder / "hf_quant_config.json").write_text(json.dumps(fmt.hf_quant_config))
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, folder / "model.safetensors")


def _encoder(stem: str, value: Tensor, fmt: Format) -> Encoder:
    if value.ndim == 2:
        for pattern, encoder in fmt.encoders.items():
            if re.search(pattern, stem):
                return encoder
    return plain(fmt.rest)


def _put_expert(tensors: dict[str, Tensor], name: str, expert: int, bank: Tensor, fmt: Format) -> Tensor:
    """Gate and up are encoded one by one, each with its own global scale; if fused by '_', as one 'gate_proj'."""
    stem, bank_name = name.rsplit(".", 1)
    projections = ("gate_proj", "up_proj") if bank_name == "gate_up_proj" else ("down_proj",)
    if fmt.fuses == "_":
        projections = projections[:1]
    meant = []
    for projection, matrix in zip(projections, bank.chunk(len(projections)), strict=True):
        encoded, stored = _encoder(f"{stem}.{expert}.{projection}", matrix, fmt)(matrix)
        tensors |= {f"{stem}.{expert}.{projection}{suffix}": tensor for suffix, tensor in encoded.items()}
        meant.append(stored)
    return torch.cat(meant)


def _fuse(tensors: dict[str, Tensor], num_experts: int, joint: str) -> dict[str, Tensor]:
    """Per-expert tensors as banks [E, …]; scales of gate and up that are one number each become [E, 2]."""
    fused: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(.*\.experts)\.0\.(gate|down)_proj\.(\w+)", name)
        if match is None:
            if ".experts." not in name:
                fused[name] = tensor
            continue
        stem, projection, part = match.groups()
        names = (f"gate_proj.{part}", f"up_proj.{part}") if projection == "gate" else (f"down_proj.{part}",)
        rows = [
            torch.cat(
                [
                    tensors[n].view(-1, *tensor.shape[1:])
                    for n in (f"{stem}.{expert}.{m}" for m in names)
                    if n in tensors
                ]
            )
            for expert in range(num_experts)
        ]
        bank = f"{stem}.{'gate_up_proj' if projection == 'gate' else 'down_proj'}"
        suffix = "" if part == "weight" else f"{joint}{part.replace('weight_scale_inv', 'scale_inv')}"
        fused[f"{bank}{suffix}"] = torch.stack(rows)
    return fused


def _renamed(name: str, prefix: str) -> str:
    if name.startswith("lm_head") and prefix == "language_model.model.":
        return f"language_model.{name}"
    return prefix + name.removeprefix("model.") if name.startswith("model.") else name
