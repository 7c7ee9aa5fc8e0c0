"""Dense weights on their way from checkpoint to layer: converted once to the compute dtype, counted in bytes.

Refuses values that are not finite, by tensor name.
"""

import torch
from torch import Tensor

from runtime.checkpoint.tensors import TensorSource
from runtime.errors import CheckpointError


class DenseWeights:
    """Reads dense tensors for the layers; `num_bytes` is what they hold afterwards."""

    def __init__(self, source: TensorSource, device: torch.device, dtype: torch.dtype) -> None:
        self.source = source
        self.device = device
        self.dtype = dtype
        self.num_bytes = 0

    def read(self, name: str) -> Tensor:
        """A copy in compute dtype, not counted: for the caller to reorder and then `keep`."""
        return self._get(name, self.dtype)

    def keep(self, tensor: Tensor) -> Tensor:
        """A contiguous tensor of its own memory that a layer holds from now on; counts it."""
        kept = tensor.clone(memory_format=torch.contiguous_format)
        self.num_bytes += kept.nbytes
        return kept

    def matrix(self, *names: str) -> Tensor:
        """[N, K] matrices stacked along N into one, so that one product serves them all."""
        return self.keep(torch.cat([self.read(name) for name in names]))

    def norm_scale(self, name: str, num_groups: int | None = None) -> Tensor:
        """1 + weight in fp32: [D], or [groups, D // groups]."""
        scale = self._get(name, torch.float32) + 1.0
        return self.keep(scale if num_groups is None else scale.view(num_groups, -1))

    def conv(self, name: str) -> Tensor:
        """A depthwise convolution [C, 1, K] as taps [K, C]."""
        return self.keep(self.read(name).squeeze(1).t())

    def vector(self, name: str) -> Tensor:
        """A 1-D tensor in fp32."""
        return self.keep(self._get(name, torch.float32))

    def _get(self, name: str, dtype: torch.dtype) -> Tensor:
        """One NaN or infinity would turn every answer into noise, so it is refused by name."""
        values = self.source.get(name).to(device=self.device, dtype=dtype)
        if not bool(torch.isfinite(values).all()):
            file = self.source.files.find(name).file
            raise CheckpointError(f"{file}: tensor {name} has NaN or infinity; the file is damaged, download it again")
        return values
