"""What wraps a block: how its input is taken from the residual, and its output added back."""

from typing import Protocol

from torch import Tensor

from runtime.families.names import ResidualBlock
from runtime.kernels.ops import Ops
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.hyper_connection import HyperConnection
from runtime.spec import ModelSpec


class Residual(Protocol):
    """One block's wrapping; `width` of the residual is the spec's."""

    def mix(self, residual: Tensor) -> tuple[Tensor, Tensor | None]:
        """Block input [N, H] from residual [N, width], in its dtype, and what `inject` needs."""
        ...

    def inject(self, residual: Tensor, output: Tensor, inject: Tensor | None) -> None:
        """Add the block's output [N, H] to `residual`, in place."""
        ...


class PreNorm:
    """One RMS norm before the block; its output is added as it is."""

    def __init__(self, spec: ModelSpec, weights: DenseWeights, stem: str, ops: Ops) -> None:
        self._ops = ops
        self._eps = spec.rms_norm_eps
        self._scale = weights.norm_scale(f"{stem}.weight")

    def mix(self, residual: Tensor) -> tuple[Tensor, None]:
        """The normed residual."""
        return self._ops.rms_norm(residual, self._scale, self._eps), None

    def inject(self, residual: Tensor, output: Tensor, inject: Tensor | None) -> None:
        """Plain addition."""
        residual.add_(output)


def residual_of(spec: ModelSpec, weights: DenseWeights, block: ResidualBlock, prefix: str, ops: Ops) -> Residual:
    """The wrapping a model has for `block`; `prefix` comes before the tensor names."""
    if spec.hyper_connection is not None:
        return HyperConnection(spec, weights, f"{prefix}{block.hyper_connection}", ops)
    return PreNorm(spec, weights, f"{prefix}{block.norm}", ops)
