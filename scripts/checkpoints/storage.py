"""How published repositories store each weight: which tensors stand for it, with dtype and shape."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
Stored = tuple[str, str, Shape]
"""Suffix, safetensors dtype, shape."""

_EXPERTS, _SHARED, _HEAD = r"\.mlp\.experts\.\d", r"\.shared_expert\.", r"^lm_head$"
_ATTENTION = r"\.self_attn\.[qkvo]_proj$"
_DELTA_NET = r"\.linear_attn\.(in_proj_qkv|in_proj_z|in_proj_qkvz|out_proj)$"


def _modelopt(rows: int, columns: int) -> Iterator[Stored]:
    yield ".weight", "U8", (rows, columns // 2)
    yield ".weight_scale", "F8_E4M3", (rows, -(-columns // 16))
    yield ".weight_scale_2", "F32", ()
    yield ".input_scale", "F32", ()


def _compressed_tensors(rows: int, columns: int) -> Iterator[Stored]:
    yield ".weight_packed", "U8", (rows, columns // 2)
    yield ".weight_scale", "F8_E4M3", (rows, -(-columns // 16))
    yield ".weight_global_scale", "F32", (1,)
    yield ".input_global_scale", "F32", (1,)


def _fp8(rows: int, columns: int) -> Iterator[Stored]:
    yield ".weight", "F8_E4M3", (rows, columns)
    yield ".weight_scale", "F32", ()
    yield ".input_scale", "F32", ()


def _fp8_blocks(rows: int, columns: int) -> Iterator[Stored]:
    yield ".weight", "F8_E4M3", (rows, columns)
    yield ".weight_scale_inv", "BF16", (-(-rows // 128), -(-columns // 128))


_Encoding = Callable[[int, int], Iterator[Stored]]


@dataclass(frozen=True)
class StorageFormat:
    """`encodings` by the first pattern found in a matrix's name; what none matches is bf16."""

    encodings: dict[str, _Encoding]
    quantization_config: dict[str, Any] = field(default_factory=dict)
    hf_quant_config: dict[str, Any] = field(default_factory=dict)
    has_fp8_table: bool = True

    def stored(self, stem: str, rows: int, columns: int) -> Iterator[Stored]:
        """The tensors of one matrix [rows, columns]."""
        for pattern, encode in self.encodings.items():
            if re.search(pattern, stem):
                return encode(rows, columns)
        return iter([(".weight", "BF16", (rows, columns))])


def _modelopt_config(algorithm: str) -> dict[str, Any]:
    return {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm, "group_size": 16}}


FORMATS = {
    # RadixArk/Qwen3.8-Flash-Next-NVFP4 and nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4: routed experts only.
    "modelopt": StorageFormat({_EXPERTS: _modelopt}, hf_quant_config=_modelopt_config("NVFP4")),
    # nvidia/Qwen3-30B-A3B-NVFP4: attention too.
    "modelopt-attention": StorageFormat(
        {f"{_EXPERTS}|{_ATTENTION}": _modelopt}, hf_quant_config=_modelopt_config("NVFP4")
    ),
    # nvidia/Qwen3.6-35B-A3B-NVFP4: two kinds of quantisation side by side.
    "modelopt-mixed": StorageFormat(
        {f"{_EXPERTS}|{_SHARED}|{_HEAD}": _modelopt, f"{_ATTENTION}|{_DELTA_NET}": _fp8},
        hf_quant_config=_modelopt_config("MIXED_PRECISION"),
    ),
    # RedHatAI/Qwen3.6-35B-A3B-NVFP4.
    "compressed-tensors": StorageFormat(
        {f"{_EXPERTS}|{_ATTENTION}|{_SHARED}": _compressed_tensors},
        {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
    ),
    "fp8": StorageFormat({f"{_EXPERTS}|{_ATTENTION}|{_SHARED}": _fp8}, hf_quant_config=_modelopt_config("FP8")),
    # Qwen/Qwen3.8-Flash-Next-FP8: routed experts only.
    "fp8-blocks": StorageFormat({_EXPERTS: _fp8_blocks}, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "bf16": StorageFormat({}, has_fp8_table=False),
}
