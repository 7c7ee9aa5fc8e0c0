"""Launches of the sampler at two vocabularies."""

import torch

from runtime.kernels.torch_ops.sampler import NUM_CHOICES
from runtime.kernels.triton_ops import sampler


def launch_sample() -> None:
    rows = torch.empty(4, dtype=torch.int64)
    choices, uniforms = torch.empty(4, NUM_CHOICES, dtype=torch.float64), torch.empty(4, dtype=torch.float64)
    sampler.sample_rows(torch.empty(4, 248320), choices, torch.empty(4, 248320, dtype=torch.uint8), rows, uniforms)
