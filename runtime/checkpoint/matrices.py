"""Weight matrices as views of the mapped files, in the format they are stored in. Refuses scales that can't be one
and weights that aren't finite."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.checkpoint.files import TensorEntry
from runtime.checkpoint.formats import StoredMatrix, wrong_shape
from runtime.checkpoint.tensors import TensorSource
from runtime.errors import CheckpointError
from runtime.record import FP8_BLOCK

_E4M3_NAN = 0x7F
_CHECKED_VALUES = 1 << 22


@dataclass(frozen=True)
class Nvfp4Matrix:
    """W[n, k] = e2m1(codes) * e4m3(scales[n, k // 16]) * global_scale; the low nibble is the even k."""

    codes: Tensor
    """uint8 [N, K/2]."""
    scales: Tensor
    """uint8 [N, ceil(K/16)], e4m3 bits."""
    global_scale: float


@dataclass(frozen=True)
class Fp8Matrix:
    """W[n, k] = e4m3(values[n, k]) * scales[n, k // 128]."""

    values: Tensor
    """uint8 [N, K], e4m3 bits."""
    scales: Tensor
    """fp32 [N, ceil(K/128)]; whether the file has one scale, one per row or one per block makes no difference here."""


@dataclass(frozen=True)
class PlainMatrix:
    """W itself: bf16, fp16 or fp32 [N, K]."""

    values: Tensor


Matrix = Nvfp4Matrix | Fp8Matrix | PlainMatrix


def read_matrix(source: TensorSource, stored: StoredMatrix) -> Matrix:
    """A weight [N, K] that `stored.check` has passed. Raises CheckpointError naming the tensor of a bad scale."""
    values = source.get(stored.values.name)
    if stored.kind == "plain":
        return PlainMatrix(refuse_not_finite(values, stored.values))
    assert stored.scales is not None
    scales = source.get(stored.scales.name)
    if stored.kind == "fp8":
        multipliers = _spread(_checked_multipliers(scales.float(), stored.scales), *values.shape)
        return Fp8Matrix(_without_nan(values.view(torch.uint8), stored.values), multipliers)
    return Nvfp4Matrix(
        values, _checked_blocks(scales.view(torch.uint8), stored.scales), read_multiplier(source, stored)
    )


def read_multiplier(source: TensorSource, stored: StoredMatrix) -> float:
    """The one number of an NVFP4 or FP8 matrix that multiplies all of it. Raises CheckpointError naming a bad one."""
    entry = stored.global_scale or stored.scales
    assert entry is not None
    if math.prod(entry.shape) != 1:
        raise wrong_shape(entry, ())
    return float(_checked_global(source.get(entry.name).float(), entry, stored.divides))


def read_bank(source: TensorSource, stored: StoredMatrix, expert: int, num_parts: int) -> list[Matrix]:
    """One expert's [N, K] of a bank [E, N, K], cut into `num_parts` equal runs of rows (gate and up: 2)."""
    values = source.get(stored.values.name)
    num_experts = values.shape[0]
    runs = values[expert].chunk(num_parts)
    if stored.kind == "plain":
        return [PlainMatrix(refuse_not_finite(run, stored.values)) for run in runs]
    assert stored.scales is not None
    scales = source.get(stored.scales.name)
    if stored.kind == "fp8":
        own = scales if scales.numel() == 1 else scales[expert]
        multipliers = _spread(_checked_multipliers(own.float(), stored.scales), *values.shape[1:])
        return [
            Fp8Matrix(_without_nan(run.view(torch.uint8), stored.values), part)
            for run, part in zip(runs, multipliers.chunk(num_parts), strict=True)
        ]
    assert stored.global_scale is not None
    globals_ = source.get(stored.global_scale.name).float()
    own = globals_ if globals_.numel() == 1 else globals_.reshape(num_experts, -1)[expert]
    factors = _checked_global(own.flatten(), stored.global_scale, stored.divides).expand(num_parts)
    blocks = _checked_blocks(scales[expert].view(torch.uint8), stored.scales).chunk(num_parts)
    return [Nvfp4Matrix(*parts) for parts in zip(runs, blocks, factors.tolist(), strict=True)]


def refuse_not_finite(values: Tensor, entry: TensorEntry) -> Tensor:
    """The values; one NaN or infinity would turn every answer into noise, so CheckpointError names its tensor."""
    # A few at a time: the check takes twice the memory of what it looks at.
    if values.numel() and not all(_are_finite(part) for part in values.reshape(-1).split(_CHECKED_VALUES)):
        raise _not_finite(entry)
    return values


def _are_finite(part: Tensor) -> bool:
    """One pass: the extremes of values with a NaN are NaN."""
    return all(bool(extreme.isfinite()) for extreme in torch.aminmax(part))


def _without_nan(bits: Tensor, entry: TensorEntry) -> Tensor:
    """e4m3 bits; it has no infinity, and 0x7F and 0xFF are NaN."""
    if any(bool(((part & _E4M3_NAN) == _E4M3_NAN).any()) for part in bits.reshape(-1).split(_CHECKED_VALUES)):
        raise _not_finite(entry)
    return bits


def _not_finite(entry: TensorEntry) -> CheckpointError:
    return CheckpointError(
        f"{entry.file}: tensor {entry.name} has NaN or infinity; the file is damaged, download it again"
    )


def _spread(multipliers: Tensor, num_rows: int, width: int) -> Tensor:
    """One scale, one per row, or one per block, as fp32 [N, ceil(K/128)]."""
    num_blocks = -(-width // FP8_BLOCK)
    if multipliers.numel() == 1:
        return multipliers.reshape(1, 1).expand(num_rows, num_blocks)
    if multipliers.numel() == num_rows and multipliers.shape[0] == num_rows:
        return multipliers.reshape(num_rows, 1).expand(num_rows, num_blocks)
    return multipliers.repeat_interleave(FP8_BLOCK, 0)[:num_rows]


def _checked_multipliers(multipliers: Tensor, entry: TensorEntry) -> Tensor:
    _refuse(~multipliers.isfinite() | (multipliers < 0), entry, multipliers)
    return multipliers


def _checked_global(scale: Tensor, entry: TensorEntry, divides: bool) -> Tensor:
    """What multiplies: finite and above 0, before and after it is inverted."""
    factor = 1.0 / scale if divides else scale
    _refuse(~scale.isfinite() | (scale <= 0) | ~factor.isfinite(), entry, scale)
    return factor


def _refuse(is_bad: Tensor, entry: TensorEntry, values: Tensor) -> None:
    if bool(is_bad.any()):
        worst = float(values[is_bad].flatten()[0])
        raise _damaged(entry, f"is {worst}" if values.numel() == 1 else f"has {worst}")


def _checked_blocks(bits: Tensor, entry: TensorEntry) -> Tensor:
    """e4m3 bits [N, groups] without NaN (0x7F, 0xFF), not all 0."""
    magnitudes = bits & _E4M3_NAN
    largest = int(magnitudes.max()) if magnitudes.numel() else 0
    if largest == _E4M3_NAN:
        row, group = (magnitudes == _E4M3_NAN).nonzero()[0].tolist()
        raise _damaged(entry, f"has NaN at [{row}, {group}]")
    if not largest:
        raise _damaged(entry, "has only zeros")
    return bits


def _damaged(entry: TensorEntry, what: str) -> CheckpointError:
    return CheckpointError(f"{entry.file}: scale tensor {entry.name} {what}; the file is damaged, download it again")
