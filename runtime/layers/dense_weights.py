"""Dense weights on their way from checkpoint to layer: converted once, to a plain dtype or to e4m3, counted in bytes.

Refuses values that are not finite, by tensor name.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from runtime.checkpoint.formats import find_matrix
from runtime.checkpoint.matrices import Fp8Matrix, Matrix, Nvfp4Matrix, read_matrix, refuse_not_finite
from runtime.checkpoint.tensors import TensorSource
from runtime.kernels.torch_ops import fp8, nvfp4
from runtime.kernels.torch_ops.linear import quantise_rows
from runtime.layers.projection import Projection

DEQUANTISED_BYTES = 64 << 20
"""Of a quantised matrix in fp32 at once; a head is thirty times as large."""


class DenseWeights:
    """Reads dense tensors for the layers; `num_bytes` is what they hold afterwards, told to `on_kept` as it grows.

    `residual_dtype` (None: `dtype`) is that of residual streams, hyper-connections and delta nets. In fp64 it keeps a
    CPU's logits exact: the norm after a delta net divides by a read-out that may nearly vanish, and then makes more
    than 1e-4 out of the round-off of fp32 in what leads there.
    `is_fp8` makes e4m3 with a scale per output of what layers call quantisable in `projection`.
    """

    def __init__(
        self,
        source: TensorSource,
        device: torch.device,
        dtype: torch.dtype,
        norm_adds_one: bool,
        on_kept: Callable[[int], None] = lambda num_bytes: None,
        residual_dtype: torch.dtype | None = None,
        is_fp8: bool = False,
    ) -> None:
        self.source = source
        self.device = device
        self.dtype = dtype
        self.residual_dtype = residual_dtype or dtype
        self.is_fp8 = is_fp8
        self.num_bytes = 0
        self._norm_offset = 1.0 if norm_adds_one else 0.0
        self._on_kept = on_kept

    @property
    def compute_dtype(self) -> torch.dtype:
        """Of activations: weights may be stored in 16 bits, but nothing is computed in them."""
        return torch.promote_types(self.dtype, torch.float32)

    @property
    def residual_compute_dtype(self) -> torch.dtype:
        """Of residual streams, and of activations in hyper-connections and delta nets."""
        return torch.promote_types(self.residual_dtype, torch.float32)

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """A copy in `dtype` or the compute dtype, not counted: for the caller to reorder and then `keep`."""
        dtype = dtype or self.dtype
        stored = find_matrix(self.source.files, name.removesuffix(".weight"))
        if stored.kind == "plain":
            return self._get(name, dtype)
        for entry in stored.entries:
            self.source.announce(entry, entry.begin, entry.end)
        return self._dequantise(read_matrix(self.source, stored), dtype)

    def keep(self, tensor: Tensor) -> Tensor:
        """What a layer holds from now on, contiguous; counts it. The tensor must not be a view of a mapped file."""
        kept = tensor.contiguous()
        self.num_bytes += kept.nbytes
        self._on_kept(self.num_bytes)
        return kept

    def matrix(self, *names: str, dtype: torch.dtype | None = None) -> Tensor:
        """[N, K] matrices stacked along N into one, so that one product serves them all."""
        parts = [self.read(name, dtype) for name in names]
        return self.keep(parts[0] if len(parts) == 1 else torch.cat(parts))

    def projection(self, quantisable: Sequence[Tensor], exact: Sequence[Tensor] = ()) -> Projection:
        """[N, K] matrices of `read` stacked along N, the exact ones last, kept for `ops.linear`."""
        if not self.is_fp8:
            parts = [*quantisable, *exact]
            return Projection(self.keep(parts[0] if len(parts) == 1 else torch.cat(parts)))
        quantised = [_quantise(part) for part in quantisable]
        values, scale = (self.keep(torch.cat(parts)) for parts in zip(*quantised, strict=True))
        return Projection(values, scale, self.keep(torch.cat(list(exact))) if exact else None)

    def read_norm_scale(self, name: str) -> Tensor:
        """What an RMS norm multiplies by, fp32 [D]: 1 + weight or the weight itself. Not counted."""
        return self._get(name, torch.float32) + self._norm_offset

    def norm_scale(self, name: str, num_groups: int | None = None) -> Tensor:
        """The same, kept: [D], or [groups, D // groups]."""
        scale = self.read_norm_scale(name)
        return self.keep(scale if num_groups is None else scale.view(num_groups, -1))

    def conv(self, name: str) -> Tensor:
        """A depthwise convolution [C, 1, K] as taps [K, C], in the compute dtype."""
        return self.keep(self.read(name, self.compute_dtype).squeeze(1).t())

    def vector(self, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
        """A 1-D tensor."""
        return self.keep(self._get(name, dtype))

    def _get(self, name: str, dtype: torch.dtype) -> Tensor:
        """A copy, piece by piece while the pieces that follow are read."""
        stored, entry = self.source.get(name), self.source.files.find(name)
        values = torch.empty(stored.shape, device=self.device, dtype=dtype)
        for source, target in self.source.pieces(entry, stored, values):
            target.copy_(source)
            refuse_not_finite(target, entry)
        return values

    def _dequantise(self, matrix: Matrix, dtype: torch.dtype) -> Tensor:
        """A few rows at a time, so that no large matrix exists in fp32 beside its result."""
        num_rows, width = (matrix.codes if isinstance(matrix, Nvfp4Matrix) else matrix.values).shape
        width *= 2 if isinstance(matrix, Nvfp4Matrix) else 1
        result = torch.empty(num_rows, width, device=self.device, dtype=dtype)
        step = max(1, DEQUANTISED_BYTES // (4 * width))
        for begin in range(0, num_rows, step):
            rows = slice(begin, begin + step)
            if isinstance(matrix, Nvfp4Matrix):
                values = nvfp4.dequantise(matrix.codes[rows], matrix.scales[rows], matrix.global_scale)
            else:
                assert isinstance(matrix, Fp8Matrix)
                values = fp8.dequantise(matrix.values[rows], matrix.scales[rows])
            result[rows].copy_(values)
        return result


def _quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """`quantise_rows`, a few rows at a time: no large matrix exists in fp32 beside its result."""
    parts = [quantise_rows(rows) for rows in weight.split(max(1, DEQUANTISED_BYTES // (4 * weight.shape[1])))]
    values, scales = (torch.cat(column) for column in zip(*parts, strict=True))
    return values, scales
