"""What a checkpoint says about its own format, beside what its tensors are. The tensors count; this finds the lies."""

from collections.abc import Mapping
from typing import Any

from runtime.checkpoint.files import CheckpointFiles, read_json
from runtime.spec import ExpertFormat

_HF_QUANT_CONFIG = "hf_quant_config.json"
_COMPRESSED_TENSORS = {"nvfp4-pack-quantized": "nvfp4", "float-quantized": "fp8", "naive-quantized": "fp8"}


def contradiction(files: CheckpointFiles, found: tuple[ExpertFormat, ...]) -> str | None:
    """One line if the config names one format for the experts and none of the layers has it; else None."""
    path = files.folder / _HF_QUANT_CONFIG
    beside = read_json(path).get("quantization") if path.is_file() else None
    inside = files.config.get("quantization_config")
    for file_name, section in ((_HF_QUANT_CONFIG, beside), ("config.json", inside)):
        claimed = claimed_format(section) if isinstance(section, Mapping) else None
        if claimed is not None and claimed not in found:
            return f"{files.folder}: {file_name} says {claimed}, but the experts are {found[0]}; the tensors count"
    return None


def claimed_format(section: Mapping[str, Any]) -> str | None:
    """The format a quantisation section claims for all weights; None where it names several or nothing known."""
    method, algorithm = section.get("quant_method"), str(section.get("quant_algo", "")).upper()
    if method == "compressed-tensors":
        return _COMPRESSED_TENSORS.get(str(section.get("format")))
    if "NVFP4" in algorithm:
        return "nvfp4"
    if algorithm.startswith("FP8") or method == "fp8":
        return "fp8"
    return str(method) if method in ("gptq", "awq", "bitsandbytes") else None
