"""Owns the demo folder on disk: NVFP4 experts under ModelOpt names, bf16 for the rest, config and generation files."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from demo.architecture import Architecture, checkpoint_config
from demo.model.student import Student
from demo.nvfp4 import PEAK, Nvfp4, dequantise, global_scale, quantise

PREFIX = "model.language_model."
NOT_QUANTISED = [
    "model.language_model.embed_tokens",
    "lm_head",
    "*.self_attn.*",
    "*.linear_attn.*",
    "*.mlp.gate*",
    "*.mlp.shared_expert.*",
    "*.mlp.shared_expert_gate*",
    "*hyper_connection*",
    "*.ple.*",
]
QUANTISATION = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
            "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
        }
    },
    "ignore": NOT_QUANTISED,
}
SAMPLING_DEFAULTS = {"do_sample": True, "temperature": 0.5, "top_k": 20, "top_p": 0.95, "min_p": 0.1}
EXPERT_PARAMETER = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up_proj|down_proj)")


def write_folder(model: Student, folder: Path, special: dict[str, int], peaks: dict[int, tuple[float, float]]) -> None:
    """Writes weights and configs. `special` maps token to id; `peaks` gives the largest expert input per layer."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(folder_tensors(model, peaks), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_json(folder / "config.json", checkpoint_config(model.arch, QUANTISATION))
    quantisation = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": None,
        "group_size": 16,
        "exclude_modules": NOT_QUANTISED,
    }
    producer = {"name": "hotslot-train-demo", "version": "1"}
    write_json(folder / "hf_quant_config.json", {"producer": producer, "quantization": quantisation})
    end_of_text, end_of_turn = special["<|endoftext|>"], special["<|im_end|>"]
    stops = {"bos_token_id": end_of_text, "eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text}
    write_json(folder / "generation_config.json", {**stops, **SAMPLING_DEFAULTS})


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def folder_tensors(model: Student, peaks: dict[int, tuple[float, float]]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        tensor = tensor.detach().cpu()
        expert = EXPERT_PARAMETER.fullmatch(name)
        if expert:
            layer = int(expert[1])
            tensors.update(expert_tensors(layer, expert[2], tensor, peaks.get(layer, (1.0, 1.0))))
        elif name.endswith("ngram_embedding.weight"):
            parts = tensor.bfloat16().chunk(model.arch.split_ngram_parts)
            stem = renamed(name).removesuffix("weight")
            tensors.update({f"{stem}shard_{part}.weight": rows.clone() for part, rows in enumerate(parts)})
        elif name != "lm_head.weight" or not model.arch.tie_word_embeddings:
            tensors[renamed(name)] = (tensor if tensor.dtype == torch.int64 else tensor.bfloat16()).contiguous()
    return tensors


def renamed(name: str) -> str:
    return PREFIX + name.removeprefix("model.") if name.startswith("model.") else name


def expert_tensors(layer: int, kind: str, bank: Tensor, peaks: tuple[float, float]) -> dict[str, Tensor]:
    """One layer's bank [E, ...] as per-expert ModelOpt tensors; gate and up share their fp32 scale."""
    tensors: dict[str, Tensor] = {}
    names, peak = (("gate_proj", "up_proj"), peaks[0]) if kind == "gate_up_proj" else (("down_proj",), peaks[1])
    for expert, weight in enumerate(bank):
        matrices = weight.chunk(len(names))
        scale = global_scale(*matrices)
        for name, matrix in zip(names, matrices, strict=True):
            stem = f"{PREFIX}layers.{layer}.mlp.experts.{expert}.{name}."
            rounded = quantise(matrix, scale)
            tensors[stem + "weight"] = rounded.packed.contiguous()
            tensors[stem + "weight_scale"] = rounded.block_scale.contiguous()
            tensors[stem + "weight_scale_2"] = rounded.global_scale.clone()
            tensors[stem + "input_scale"] = torch.tensor(peak / PEAK)
    return tensors


def read_folder(folder: Path) -> Student:
    """The folder's weights, experts dequantised, in fp32."""
    text = json.loads((folder / "config.json").read_text(encoding="utf-8"))["text_config"]
    known = Architecture.__dataclass_fields__
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in text.items() if name in known}
    model = Student(Architecture(**fields))
    model.load_state_dict(student_state(load_file(folder / "model.safetensors"), model.arch), strict=False)
    return model.eval()


def student_state(tensors: dict[str, Tensor], arch: Architecture) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    shards: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        shard = re.fullmatch(r"(.*ngram_embedding\.)shard_(\d+)\.weight", name)
        if shard:
            shards.setdefault(shard[1], {})[int(shard[2])] = tensor
        elif ".mlp.experts." not in name:
            plain = "model." + name.removeprefix(PREFIX) if name.startswith(PREFIX) else name
            state[plain] = tensor if tensor.dtype == torch.int64 else tensor.float()
    for stem, parts in shards.items():
        rows = torch.cat([parts[index] for index in sorted(parts)])
        state["model." + stem.removeprefix(PREFIX) + "weight"] = rows.float()
    for layer in range(arch.num_hidden_layers):
        stem = f"{PREFIX}layers.{layer}.mlp.experts."
        banks = {
            kind: torch.stack([read_expert(tensors, f"{stem}{e}.{kind}.") for e in range(arch.num_experts)])
            for kind in ("gate_proj", "up_proj", "down_proj")
        }
        target = f"model.layers.{layer}.mlp.experts."
        state[target + "gate_up_proj"] = torch.cat([banks["gate_proj"], banks["up_proj"]], 1)
        state[target + "down_proj"] = banks["down_proj"]
    return state


def read_expert(tensors: dict[str, Tensor], stem: str) -> Tensor:
    names = ("weight", "weight_scale", "weight_scale_2")
    return dequantise(Nvfp4(*(tensors[stem + name] for name in names)))
