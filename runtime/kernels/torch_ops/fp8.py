"""FP8 numbers: e4m3 values with one fp32 scale per row and 128 inputs. Exact in fp32."""

import torch
from torch import Tensor
from torch.nn import functional

from runtime.record import FP8_BLOCK

_FP32_BITS = 0x87F00000 - (1 << 32)
"""Where fp32 keeps an e4m3 number's sign, exponent and mantissa, as int32."""


def e4m3_values(bits: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The numbers, in `dtype`, of e4m3 bits uint8, any shape, without NaN.

    By integer arithmetic on a CPU, where torch converts one number after another, fifteen times as slowly.
    """
    if bits.is_cuda:
        return bits.view(torch.float8_e4m3fn).to(dtype)
    wide = bits.view(torch.int8).to(torch.int32).bitwise_left_shift_(20).bitwise_and_(_FP32_BITS)
    # The exponents' biases are 127 and 7.
    return wide.view(torch.float32).mul_(2.0**120).to(dtype)


def dequantise(values: Tensor, scales: Tensor) -> Tensor:
    """fp32 [N, K] of e4m3 bits uint8 [N, K] and scales fp32 [N, ceil(K/128)]."""
    weights = e4m3_values(values)
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
