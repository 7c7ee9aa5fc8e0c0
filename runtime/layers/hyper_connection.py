"""The gated residual of one block, or the final mixer that ends the streams."""

from torch import Tensor

from runtime.families.names import FINAL_RESIDUAL
from runtime.kernels.ops import Ops
from runtime.layers.dense_weights import DenseWeights
from runtime.spec import ModelSpec


class HyperConnection:
    """Weights and call of one gated residual; `stem` is its tensor name without the part."""

    def __init__(self, spec: ModelSpec, weights: DenseWeights, stem: str, ops: Ops) -> None:
        assert spec.hyper_connection is not None
        self._ops = ops
        self._eps = spec.rms_norm_eps
        dtype = weights.residual_dtype
        self._num_streams = spec.hyper_connection.num_streams
        self._scale = weights.norm_scale(f"{stem}.hc_norm.weight", self._num_streams)
        parts = ["input_mix_weight_down"]
        if not stem.endswith(FINAL_RESIDUAL.hyper_connection):
            parts.append("block_inject_weight")
        # Both products are divided by the number of streams before their activation: do it once, here.
        self._down = weights.matrix(*(f"{stem}.{part}.weight" for part in parts), dtype=dtype).div_(self._num_streams)
        self._up = weights.matrix(f"{stem}.input_mix_weight_up.weight", dtype=dtype)

    def mix(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Block input [N, H] and inject weights [N, S] from residual [N, S*H], in its dtype."""
        mixed, inject = self._ops.mix_streams(residual, self._scale, self._down, self._up, self._num_streams, self._eps)
        return mixed, inject

    def inject(self, residual: Tensor, output: Tensor, inject: Tensor | None) -> None:
        """Add the block's output [N, H] to every stream of `residual`, in place."""
        self._ops.inject_output(residual, output, inject)

    def inject_and_mix(self, residual: Tensor, output: Tensor, inject: Tensor | None) -> tuple[Tensor, Tensor]:
        """`inject` of the block before, then `mix`."""
        mixed, own_inject = self._ops.inject_and_mix(
            residual, output, inject, self._scale, self._down, self._up, self._num_streams, self._eps
        )
        return mixed, own_inject
