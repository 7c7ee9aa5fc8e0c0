"""Dense weights on their way from checkpoint to layer: converted once to the compute dtype, counted in bytes."""

import torch
from torch import Tensor

from runtime.checkpoint.tensors import TensorSource


class DenseWeights:
    """Reads dense tensors for the layers; `num_bytes` is what they hold afterwards."""

    def __init__(self, source: TensorSource, device: torch.device, dtype: torch.dtype, norm_adds_one: bool) -> None:
        self.source = source
        self.device = device
        self.dtype = dtype
        self.num_bytes = 0
        self._norm_offset = 1.0 if norm_adds_one else 0.0

    def read(self, name: str) -> Tensor:
        """A copy in compute dtype, not counted: for the caller to reorder and then `keep`."""
        return self.source.get(name).to(device=self.device, dtype=self.dtype)

    def keep(self, tensor: Tensor) -> Tensor:
        """A contiguous tensor of its own memory that a layer holds from now on; counts it."""
        kept = tensor.clone(memory_format=torch.contiguous_format)
        self.num_bytes += kept.nbytes
        return kept

    def matrix(self, *names: str) -> Tensor:
        """[N, K] matrices stacked along N into one, so that one product serves them all."""
        return self.keep(torch.cat([self.read(name) for name in names]))

    def read_norm_scale(self, name: str) -> Tensor:
        """What an RMS norm multiplies by, fp32 [D]: 1 + weight or the weight itself. Not counted."""
        return self.source.get(name).to(device=self.device, dtype=torch.float32) + self._norm_offset

    def norm_scale(self, name: str, num_groups: int | None = None) -> Tensor:
        """The same, kept: [D], or [groups, D // groups]."""
        scale = self.read_norm_scale(name)
        return self.keep(scale if num_groups is None else scale.view(num_groups, -1))

    def conv(self, name: str) -> Tensor:
        """A depthwise convolution [C, 1, K] as taps [K, C]."""
        return self.keep(self.read(name).squeeze(1).t())

    def vector(self, name: str) -> Tensor:
        """A 1-D tensor in fp32."""
        return self.keep(self.source.get(name).to(device=self.device, dtype=torch.float32))
