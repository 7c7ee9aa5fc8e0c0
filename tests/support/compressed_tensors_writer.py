"""Checkpoint folders that the compressed-tensors package compresses and transformers saves.

Owns what a calibration tool adds before that: experts as Linear modules, and scales from the weights' extremes.
"""

import copy
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
from compressed_tensors.quantization.quant_args import QuantizationArgs
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.support.tiny_models import dequantise_nvfp4

IGNORED = ["lm_head", "re:.*shared_expert_gate$", "re:.*hyper_connection.*", "re:.*[.]ple[.].*", "re:.*[.]indexer[.].*"]
"""What published recipes leave unquantised, besides the router, which is no Linear module."""
FP8_BLOCK = 128
SHARD_BYTES = 400_000
"""Small enough that a tiny model is saved as several files and an index."""


class LinearExperts(nn.Module):
    """A fused bank of experts as one module per matrix, named as published checkpoints name them."""

    def __init__(self, fused: Any) -> None:
        super().__init__()
        for expert, (gate_up, down) in enumerate(zip(fused.gate_up_proj, fused.down_proj, strict=True)):
            gate, up = gate_up.chunk(2)
            matrices = {"gate_proj": gate, "up_proj": up, "down_proj": down}
            linears = nn.ModuleDict({name: _linear(matrix) for name, matrix in matrices.items()})
            self.add_module(str(expert), linears)


def save_compressed(model: Any, scheme_name: str, folder: Path) -> Any:
    """Compress a copy of a transformers model by a preset of the package and save it; returns the compressed copy."""
    compressed = copy.deepcopy(model)
    for layer in compressed.model.layers:
        layer.mlp.experts = LinearExperts(layer.mlp.experts)
    scheme = preset_name_to_scheme(scheme_name, ["Linear"])
    apply_quantization_config(
        compressed, QuantizationConfig(config_groups={"group_0": scheme}, ignore=IGNORED), show_progress=False
    )
    for module in compressed.modules():
        if hasattr(module, "quantization_scheme"):
            _calibrate(module)
    compressor = ModelCompressor.from_pretrained_model(compressed)
    compressor.compress_model(compressed)
    compressed.save_pretrained(folder, max_shard_size=SHARD_BYTES)
    compressor.update_config(str(folder))
    return compressed


def load_dequantised(model: Any, folder: Path) -> Any:
    """The transformers model that has the weights which the folder's tensors mean."""
    stored = {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}
    weights = _dequantise(stored)
    meant = copy.deepcopy(model)
    for name, value in meant.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            value.copy_(_bank(weights, name, "gate_proj", "up_proj"))
        elif name.endswith("experts.down_proj"):
            value.copy_(_bank(weights, name, "down_proj"))
        elif "ngram_embedding" not in name:
            # The n-gram table isn't quantised, and saved in shards.
            value.copy_(weights[name])
    return meant


def _dequantise(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    weights = dict(stored)
    for name, value in stored.items():
        if name.endswith(".weight_packed"):
            stem = name.removesuffix("_packed")
            weights[stem] = dequantise_nvfp4(value, stored[f"{stem}_scale"], 1 / stored[f"{stem}_global_scale"])
        elif value.dtype == torch.float8_e4m3fn and name.endswith(".weight"):
            scales = stored[f"{name}_scale"].float()
            if scales.ndim == 2 and scales.shape != (value.shape[0], 1):
                scales = scales.repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)
                scales = scales[: value.shape[0], : value.shape[1]]
            weights[name] = value.float() * scales
    return weights


def _bank(weights: dict[str, Tensor], name: str, *projections: str) -> Tensor:
    stem = name.rsplit(".", 1)[0]
    num_experts = sum(other.startswith(stem) and other.endswith("down_proj.weight") for other in weights)
    return torch.stack([
        torch.cat([weights[f"{stem}.{expert}.{projection}.weight"] for projection in projections])
        for expert in range(num_experts)
    ])  # fmt: skip


def _linear(matrix: Tensor) -> nn.Linear:
    linear = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
    linear.weight.data.copy_(matrix)
    return linear


@torch.no_grad()
def _calibrate(module: Any) -> None:
    """Scales by the extremes of each group, as the simplest observer of a calibration tool gives them."""
    weight, arguments = module.weight, module.quantization_scheme.weights
    global_scale = None
    if hasattr(module, "weight_global_scale"):
        global_scale = generate_gparam(weight.amin(), weight.amax())
        module.weight_global_scale.copy_(global_scale)
    groups = _groups(weight, arguments)
    scales, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), arguments, global_scale)
    module.weight_scale.copy_(scales.view(module.weight_scale.shape))
    for name in ("input_global_scale", "input_scale"):
        if hasattr(module, name):
            getattr(module, name).fill_(37.5)


def _groups(weight: Tensor, arguments: QuantizationArgs) -> Tensor:
    """The weights that share a scale, in the last dimension."""
    if arguments.strategy == "tensor":
        return weight.reshape(1, -1)
    if arguments.strategy == "channel":
        return weight
    if arguments.strategy == "block":
        rows, columns = weight.shape
        padded = nn.functional.pad(weight, (0, -columns % FP8_BLOCK, 0, -rows % FP8_BLOCK))
        blocks = padded.unflatten(1, (-1, FP8_BLOCK)).unflatten(0, (-1, FP8_BLOCK))
        return blocks.transpose(1, 2).flatten(2)
    return weight.unflatten(1, (-1, arguments.group_size))
