"""Reads the quantisation scales of a checkpoint and refuses those that can't be one. No torch.

A block scale is e4m3 (0x7F and 0xFF are NaN); a global scale must be finite and above 0. Run before anything is
allocated: one bad scale turns a whole answer into noise long after loading.
"""

import math
import mmap
import struct
from pathlib import Path

import numpy

from runtime.checkpoint.files import CheckpointFiles, TensorEntry
from runtime.checkpoint.inventory import PROJECTIONS
from runtime.errors import CheckpointError
from runtime.families.names import NameMap
from runtime.spec import ModelSpec

_E4M3_MAGNITUDE = 0x7F


def check_scales(files: CheckpointFiles, spec: ModelSpec, names: NameMap) -> None:
    """Check every scale of routed experts and n-gram tables. Raises CheckpointError naming file and tensor."""
    with _MappedFiles() as mapped:
        for stem in _quantised_stems(files, spec, names):
            block_scales = files.entries.get(f"{stem}.weight_scale")
            global_scale = files.entries.get(f"{stem}.weight_scale_2")
            if global_scale is None and block_scales is not None:
                _check_scalar(block_scales, mapped)
            elif global_scale is not None and block_scales is not None:
                _check_scalar(global_scale, mapped)
                _check_blocks(block_scales, mapped)


def _quantised_stems(files: CheckpointFiles, spec: ModelSpec, names: NameMap) -> list[str]:
    tables = [names.of_ngram_table(layer) for layer in (spec.ngram.layer_indices if spec.ngram else ())]
    if spec.weights.expert_format != "nvfp4":
        return tables
    return tables + [
        names.of_expert(layer, expert, projection)
        for layer in range(spec.num_layers)
        for expert in range(spec.moe.num_experts)
        for projection in PROJECTIONS
    ]


def _check_scalar(entry: TensorEntry, mapped: "_MappedFiles") -> None:
    value = decode_scalar(mapped.read(entry), entry.dtype)
    if not math.isfinite(value) or value <= 0:
        raise _bad_scale(entry, f"is {value}")


def _check_blocks(entry: TensorEntry, mapped: "_MappedFiles") -> None:
    bits = numpy.frombuffer(mapped.read(entry), dtype=numpy.uint8) & _E4M3_MAGNITUDE
    if (bits == _E4M3_MAGNITUDE).any():
        position = int((bits == _E4M3_MAGNITUDE).argmax())
        raise _bad_scale(entry, f"has NaN at [{position // entry.shape[-1]}, {position % entry.shape[-1]}]")
    if not bits.any():
        raise _bad_scale(entry, "has only zeros")


def decode_scalar(raw: bytes, dtype: str) -> float:
    """The value of one BF16, F16 or F32 element."""
    if dtype == "BF16":
        return float(struct.unpack("<f", b"\0\0" + raw)[0])
    return float(struct.unpack("<e" if dtype == "F16" else "<f", raw)[0])


def _bad_scale(entry: TensorEntry, what: str) -> CheckpointError:
    return CheckpointError(f"{entry.file}: scale tensor {entry.name} {what}; the file is damaged, download it again")


class _MappedFiles:
    """Weight files mapped for reading while the check runs."""

    def __init__(self) -> None:
        self._maps: dict[Path, mmap.mmap] = {}

    def __enter__(self) -> "_MappedFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for mapped in self._maps.values():
            mapped.close()

    def read(self, entry: TensorEntry) -> bytes:
        mapped = self._maps.get(entry.file)
        if mapped is None:
            with entry.file.open("rb") as stream:
                mapped = self._maps[entry.file] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return mapped[entry.begin : entry.end]
