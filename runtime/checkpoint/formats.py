"""How one weight matrix is stored: plain, NVFP4 or FP8, decided by the suffixes and dtypes present. No torch.

A stem is a name without suffix. NVFP4 is `.weight` (U8) + `.weight_scale` + `.weight_scale_2` as ModelOpt writes it, or
`.weight_packed` + `.weight_scale` + `.weight_global_scale`, which divides, as compressed-tensors does. FP8 is `.weight`
(F8_E4M3) with `.weight_scale` (one, or one per row) or `.weight_scale_inv` (one per 128 x 128 block), which multiply.
Banks of fused experts have one more leading dimension, and their parts may be joined by '_' instead of '.'.
"""

import math
from dataclasses import dataclass
from typing import Literal

from runtime.checkpoint.files import CheckpointFiles, TensorEntry
from runtime.errors import CheckpointError
from runtime.record import FP8_BLOCK, NVFP4_GROUP
from runtime.spec import ExpertFormat

PLAIN_FORMATS: dict[str, ExpertFormat] = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
"""Dtypes of unquantised weights, and of scales that multiply."""

_READABLE = (*PLAIN_FORMATS, "U8", "F8_E4M3")


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """The tensors of one weight [N, K], or of a bank [E, N, K]."""

    kind: Literal["plain", "nvfp4", "fp8"]
    values: TensorEntry
    scales: TensorEntry | None = None
    """NVFP4: e4m3 [N, ceil(K/16)]. FP8: what the values are multiplied by."""
    global_scale: TensorEntry | None = None
    """NVFP4 only: one number, or one or two per expert of a bank."""
    divides: bool = False
    """Whether the global scale is the reciprocal."""

    @property
    def expert_format(self) -> ExpertFormat:
        """What routed experts stored like this are called."""
        return PLAIN_FORMATS[self.values.dtype] if self.kind == "plain" else self.kind

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """All of its tensors."""
        return tuple(entry for entry in (self.values, self.scales, self.global_scale) if entry is not None)

    def check(self, shape: tuple[int, ...]) -> None:
        """Compare dtypes and shapes with the weight's [N, K] or [E, N, K]. Raises CheckpointError naming the tensor."""
        if self.kind == "nvfp4":
            self._check_nvfp4(shape)
        elif self.values.shape != shape:
            raise wrong_shape(self.values, shape)
        if self.kind == "fp8":
            self._check_fp8(shape)

    def _check_nvfp4(self, shape: tuple[int, ...]) -> None:
        assert self.scales is not None
        assert self.global_scale is not None
        *rows, width = shape
        if width % 2:
            raise CheckpointError(
                f"{self.values.file}: tensor {self.values.name} packs a row of {width} weights in pairs; "
                "NVFP4 needs an even width, choose a checkpoint where it is not quantised"
            )
        if self.values.shape != (*rows, width // 2):
            raise wrong_shape(self.values, (*rows, width // 2))
        check_dtype(self.scales, ("F8_E4M3",))
        if self.scales.shape != (*rows, -(-width // NVFP4_GROUP)):
            raise wrong_shape(self.scales, (*rows, -(-width // NVFP4_GROUP)))
        check_dtype(self.global_scale, tuple(PLAIN_FORMATS))
        allowed = (1,) if len(shape) == 2 else (1, shape[0], 2 * shape[0])
        if math.prod(self.global_scale.shape) not in allowed:
            raise wrong_shape(self.global_scale, (() if len(shape) == 2 else (shape[0],)))

    def _check_fp8(self, shape: tuple[int, ...]) -> None:
        assert self.scales is not None
        check_dtype(self.scales, tuple(PLAIN_FORMATS))
        *lead, rows, columns = shape
        blocks = (*lead, -(-rows // FP8_BLOCK), -(-columns // FP8_BLOCK))
        per_row = ((*lead, rows), (*lead, rows, 1))
        if math.prod(self.scales.shape) not in (1, math.prod(lead)) and self.scales.shape not in (blocks, *per_row):
            raise wrong_shape(self.scales, blocks if self.scales.name.endswith("_inv") else ())


def find_matrix(files: CheckpointFiles, stem: str, shared_stem: str = "", is_bank: bool = False) -> StoredMatrix:
    """How `stem` is stored. Scales that `stem` does not have may be `shared_stem`'s.

    Raises CheckpointError for a tensor that is missing, or whose dtype isn't read here.
    """
    joints = (".", "_") if is_bank else (".",)

    def optional(*parts: str) -> TensorEntry | None:
        names = (f"{s}{joint}{part}" for s in (stem, shared_stem) if s for joint in joints for part in parts)
        return next((files.entries[name] for name in names if name in files.entries), None)

    def required(*parts: str) -> TensorEntry:
        return optional(*parts) or files.find(f"{shared_stem or stem}{joints[-1]}{parts[0]}")

    packed = optional("weight_packed", "packed") if is_bank else optional("weight_packed")
    if packed is not None:
        check_dtype(packed, ("U8",))
        return StoredMatrix("nvfp4", packed, required("weight_scale"), required("weight_global_scale"), divides=True)
    plain = files.entries.get(stem) if is_bank else None
    values = plain or files.find(f"{stem}.weight")
    check_dtype(values, _READABLE)
    if values.dtype == "U8":
        return StoredMatrix("nvfp4", values, required("weight_scale"), required("weight_scale_2"))
    if values.dtype == "F8_E4M3":
        blocks = optional("weight_scale_inv", "scale_inv") if is_bank else optional("weight_scale_inv")
        return StoredMatrix("fp8", values, blocks or required("weight_scale"))
    return StoredMatrix("plain", values)


def check_dtype(entry: TensorEntry, allowed: tuple[str, ...]) -> None:
    """Raise CheckpointError for a tensor in a format that isn't read here."""
    if entry.dtype not in allowed:
        raise CheckpointError(
            f"{entry.file}: tensor {entry.name} has dtype {entry.dtype}, {' or '.join(allowed)} is needed; "
            "choose a checkpoint with NVFP4, FP8 (e4m3) or unquantised weights"
        )


def wrong_shape(entry: TensorEntry, shape: tuple[int, ...]) -> CheckpointError:
    """The error for a tensor whose shape contradicts the config."""
    return CheckpointError(
        f"{entry.file}: tensor {entry.name} has shape {list(entry.shape)}, config.json asks for {list(shape)}; "
        "the weights and config.json belong to different models, download both again"
    )
