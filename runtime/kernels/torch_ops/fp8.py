"""FP8 numbers: e4m3 values with one fp32 scale per row and 128 inputs. Exact in fp32."""

import torch
from torch import Tensor
from torch.nn import functional

from runtime.kernels.torch_ops.nvfp4 import tables
from runtime.record import FP8_BLOCK


def dequantise(values: Tensor, scales: Tensor) -> Tensor:
    """fp32 [N, K] of e4m3 bits uint8 [N, K] and scales fp32 [N, ceil(K/128)]."""
    weights = torch.index_select(tables(values.device)[1], 0, values.flatten().int()).view(values.shape)
    width = values.shape[-1]
    if width % FP8_BLOCK:
        return weights.mul_(scales.repeat_interleave(FP8_BLOCK, -1)[..., :width])
    weights.unflatten(-1, (-1, FP8_BLOCK)).mul_(scales.unsqueeze(-1))
    return weights


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Values uint8 [N, K] and scales fp32 [N, ceil(K/128)]: each run of 128 inputs reaches 448, e4m3's largest."""
    width = weight.shape[-1]
    blocks = functional.pad(weight.float(), (0, -width % FP8_BLOCK)).unflatten(-1, (-1, FP8_BLOCK))
    scales = blocks.abs().amax(-1).clamp_min(1e-12) / 448.0
    values = (blocks / scales.unsqueeze(-1)).to(torch.float8_e4m3fn).flatten(-2)[..., :width]
    return values.contiguous().view(torch.uint8), scales
