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

    def inject_and_mix(self, residual: Tensor, output: Tensor, inject: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`inject` of the block before, whose wrapping is of the same kind, and then `mix`."""
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

    def inject_and_mix(self, residual: Tensor, output: Tensor, inject: Tensor | None) -> tuple[Tensor, None]:
        """Addition, then the norm."""
        self.inject(residual, output, inject)
        return self.mix(residual)


class ResidualStream:
    """The residual [N, width] of a decode step; what a block gave is added when the next one takes its input.

    So the two can share a launch.
    """

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self._pending: tuple[Residual, Tensor, Tensor | None] | None = None

    def mix(self, block: Residual) -> tuple[Tensor, Tensor | None]:
        """The block's input, and what `inject` needs."""
        pending, self._pending = self._pending, None
        if pending is None:
            return block.mix(self._values)
        _, output, inject = pending
        return block.inject_and_mix(self._values, output, inject)

    def inject(self, block: Residual, output: Tensor, inject: Tensor | None) -> None:
        """Add the block's output. One block at a time: the one before must have been taken up by `mix`."""
        assert self._pending is None
        self._pending = block, output, inject

    def settled(self) -> Tensor:
        """The residual with everything added, for whoever changes it in place."""
        if self._pending is not None:
            block, output, inject = self._pending
            block.inject(self._values, output, inject)
            self._pending = None
        return self._values


def residual_of(spec: ModelSpec, weights: DenseWeights, block: ResidualBlock, prefix: str, ops: Ops) -> Residual:
    """The wrapping a model has for `block`; `prefix` comes before the tensor names."""
    if spec.hyper_connection is not None:
        return HyperConnection(spec, weights, f"{prefix}{block.hyper_connection}", ops)
    return PreNorm(spec, weights, f"{prefix}{block.norm}", ops)
