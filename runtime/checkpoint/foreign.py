"""Checkpoints of other engines' formats: recognised by their files and tensors, and refused by name. No torch."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runtime.checkpoint.files import TensorEntry
from runtime.checkpoint.skipped_parts import is_skipped
from runtime.errors import CheckpointError
from runtime.families.registry import FAMILIES

_TENSOR_MARKS = (
    (re.compile(r"\.(qweight|qzeros)$"), "GPTQ or AWQ"),
    (re.compile(r"\.weight\.(absmax|quant_map|quant_state\b.*)$|\.SCB$"), "bitsandbytes"),
    (re.compile(r"\.(trellis|svh|suh)$"), "EXL3"),
    (re.compile(r"_proj_blocks$"), "MXFP4"),
    # Their weights are meant for inputs divided channel by channel, which NVFP4 records have no place for.
    (re.compile(r"[._]pre_quant_scale$"), "AWQ (ModelOpt, with pre_quant_scale)"),
)
_INTEGERS = ("I32", "I64")
_MX_SCALES = ("U8", "F8_E8M0")
"""Exponents of two, one to 32 weights."""


def refuse_gguf(path: Path) -> None:
    """Refuse a GGUF file, and a folder that has such files and no safetensors."""
    is_gguf_file = path.suffix.lower() == ".gguf" and path.is_file()
    if is_gguf_file or (path.is_dir() and any(path.glob("*.gguf")) and not any(path.glob("*.safetensors"))):
        raise _refusal(path, "GGUF", {})


def refuse_foreign(folder: Path, config: dict[str, Any], entries: Iterable[TensorEntry]) -> None:
    """Refuse GPTQ, AWQ, bitsandbytes, EXL3, MXFP4, MXFP8 and INT4 tensors, whatever the config says about them."""
    quantisation = config.get("quantization_config")
    method = quantisation.get("quant_method") if isinstance(quantisation, dict) else None
    for entry in entries:
        if is_skipped(entry.name):
            continue
        name = next((name for mark, name in _TENSOR_MARKS if mark.search(entry.name)), None)
        if name == "GPTQ or AWQ" and method in ("gptq", "awq"):
            name = str(method).upper()
        if entry.name.endswith(".weight_packed") and entry.dtype in _INTEGERS:
            name = "INT4 (compressed-tensors pack-quantized)"
        if entry.name.endswith("weight_scale") and entry.dtype in _MX_SCALES:
            name = "MXFP8"
        if name is not None:
            raise _refusal(folder, name, config)


def _refusal(path: Path, name: str, config: dict[str, Any]) -> CheckpointError:
    examples = [f.example for f in FAMILIES if config.get("model_type") in f.model_types]
    example = examples[0] if examples else FAMILIES[0].example
    article = "an" if name[0] in "AEIM" else "a"
    return CheckpointError(
        f"{path}: is {article} {name} checkpoint, which this version does not run; "
        f"get an NVFP4 checkpoint of the model, such as {example}"
    )
