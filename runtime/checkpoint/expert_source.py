"""Routed experts of a checkpoint, one at a time, whatever their layout: per expert or fused, NVFP4 or plain.

Decides by suffix and dtype; hands out views of the mapped files and copies nothing.
"""

from dataclasses import dataclass

import torch

from runtime.checkpoint.inventory import PLAIN_FORMATS, PROJECTIONS, wrong_dtype, wrong_shape
from runtime.checkpoint.tensors import TensorSource
from runtime.errors import CheckpointError
from runtime.families.names import NameMap, Projection
from runtime.record import NVFP4_GROUP
from runtime.spec import ModelSpec

_E4M3_NAN = 0x7F


@dataclass(frozen=True)
class Nvfp4Matrix:
    """W[n, k] = e2m1(codes) * e4m3(scales[n, k // 16]) * global_scale; the low nibble is the even k."""

    codes: torch.Tensor
    """uint8 [N, K/2]."""
    scales: torch.Tensor
    """uint8 [N, ceil(K/16)], e4m3 bits."""
    global_scale: float


@dataclass(frozen=True)
class PlainMatrix:
    """W itself: bf16, fp16 or fp32 [N, K]."""

    values: torch.Tensor


@dataclass(frozen=True)
class ExpertTensors:
    """gate, up: [intermediate, hidden]; down: [hidden, intermediate]. All three in one format."""

    gate: Nvfp4Matrix | PlainMatrix
    up: Nvfp4Matrix | PlainMatrix
    down: Nvfp4Matrix | PlainMatrix


class ExpertSource:
    """Reads experts of one checkpoint."""

    def __init__(self, source: TensorSource, spec: ModelSpec, names: NameMap) -> None:
        self._source = source
        self._spec = spec
        self._names = names
        self._is_fused = source.has(names.of_fused_experts(0, "gate_up_proj"))

    def expert(self, layer: int, expert: int) -> ExpertTensors:
        """The three matrices of one expert. Raises CheckpointError naming the tensor that can't be used."""
        if self._is_fused:
            return self._fused(layer, expert)
        gate, up, down = (self._matrix(layer, expert, projection) for projection in PROJECTIONS)
        return ExpertTensors(gate, up, down)

    def _fused(self, layer: int, expert: int) -> ExpertTensors:
        moe, hidden = self._spec.moe, self._spec.hidden_size
        gate_up_shape = (moe.num_experts, 2 * moe.intermediate, hidden)
        gate_up = self._checked(
            self._names.of_fused_experts(layer, "gate_up_proj"), gate_up_shape, tuple(PLAIN_FORMATS)
        )
        down_shape = (moe.num_experts, hidden, moe.intermediate)
        down = self._checked(self._names.of_fused_experts(layer, "down_proj"), down_shape, tuple(PLAIN_FORMATS))
        self._refuse_not_finite(gate_up[expert], self._names.of_fused_experts(layer, "gate_up_proj"))
        self._refuse_not_finite(down[expert], self._names.of_fused_experts(layer, "down_proj"))
        gate, up = gate_up[expert].split(moe.intermediate)
        return ExpertTensors(PlainMatrix(gate), PlainMatrix(up), PlainMatrix(down[expert]))

    def _matrix(self, layer: int, expert: int, projection: Projection) -> Nvfp4Matrix | PlainMatrix:
        rows, columns = self._spec.moe.intermediate, self._spec.hidden_size
        if projection == "down_proj":
            rows, columns = columns, rows
        stem = self._names.of_expert(layer, expert, projection)
        if self._source.files.find(f"{stem}.weight").dtype != "U8":
            values = self._checked(f"{stem}.weight", (rows, columns), tuple(PLAIN_FORMATS))
            self._refuse_not_finite(values, f"{stem}.weight")
            return PlainMatrix(values)
        scales = self._checked(f"{stem}.weight_scale", (rows, -(-columns // NVFP4_GROUP)), ("F8_E4M3",))
        bits = scales.view(torch.uint8)
        if bool(((bits & _E4M3_NAN) == _E4M3_NAN).any()):
            raise self._damaged(f"{stem}.weight_scale", "has NaN")
        codes = self._checked(f"{stem}.weight", (rows, columns // 2), ("U8",))
        return Nvfp4Matrix(codes, bits, self._global_scale(f"{stem}.weight_scale_2"))

    def _global_scale(self, name: str) -> float:
        tensor = self._source.get(name)
        value = float(tensor) if tensor.numel() == 1 else float("nan")
        if not 0 < value < float("inf"):
            raise self._damaged(name, f"is {value}")
        return value

    def _checked(self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> torch.Tensor:
        entry = self._source.files.find(name)
        if entry.dtype not in dtypes:
            raise wrong_dtype(entry, dtypes)
        if entry.shape != shape:
            raise wrong_shape(entry, shape)
        return self._source.get(name)

    def _refuse_not_finite(self, values: torch.Tensor, name: str) -> None:
        if not bool(torch.isfinite(values).all()):
            file = self._source.files.find(name).file
            raise CheckpointError(f"{file}: tensor {name} has NaN or infinity; the file is damaged, download it again")

    def _damaged(self, name: str, what: str) -> CheckpointError:
        file = self._source.files.find(name).file
        return CheckpointError(f"{file}: scale tensor {name} {what}; the file is damaged, download it again")
