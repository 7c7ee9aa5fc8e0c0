"""Owns rounding to and from ModelOpt NVFP4: e2m1 codes, one e4m3 scale per 16 weights, one fp32 scale per matrix.

Each block takes the better of two scales: its peak at code 6, or at code 4 (finer steps near the top).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 16
CODE_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
CODE_BORDERS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
PEAK = 6.0 * 448.0


@dataclass(frozen=True)
class Nvfp4:
    """W = code * block_scale * global_scale; codes are packed in pairs, the even column in the low nibble."""

    packed: Tensor  # uint8 [N, K/2]
    block_scale: Tensor  # e4m3 [N, K/16]
    global_scale: Tensor  # fp32 []


def global_scale(*weights: Tensor) -> Tensor:
    """The fp32 scale shared by matrices that are multiplied together as one."""
    return torch.stack([weight.abs().amax() for weight in weights]).amax().float().clamp_min(1e-12) / PEAK


def quantise(weight: Tensor, scale: Tensor) -> Nvfp4:
    """weight [N, K], K a multiple of 16."""
    blocks = weight.float().unflatten(-1, (-1, GROUP))
    candidates = [round_blocks(blocks, scale, top_code) for top_code in (6.0, 4.0)]
    (codes, scales, error), (codes4, scales4, error4) = candidates
    better = error4 < error
    codes = torch.where(better[..., None], codes4, codes).flatten(-2)
    scales = torch.where(better, scales4.float(), scales.float()).to(torch.float8_e4m3fn)
    return Nvfp4(codes[..., 0::2] | (codes[..., 1::2] << 4), scales, scale)


def round_blocks(blocks: Tensor, scale: Tensor, top_code: float) -> tuple[Tensor, Tensor, Tensor]:
    """-> codes, e4m3 block scales and squared error per block, with each block's peak at `top_code`."""
    wanted = blocks.abs().amax(-1) / top_code / scale
    scales = wanted.clamp(2.0**-9, 448.0).to(torch.float8_e4m3fn)
    step = (scales.float() * scale)[..., None]
    magnitude = to_nearest_code((blocks / step).abs())
    values = torch.tensor(CODE_VALUES, device=blocks.device)[magnitude] * blocks.sign() * step
    codes = magnitude.to(torch.uint8) | ((blocks < 0).to(torch.uint8) << 3)
    return codes, scales, (values - blocks).pow(2).sum(-1)


def to_nearest_code(magnitude: Tensor) -> Tensor:
    """Index of the nearest code value; a tie goes to the even code."""
    borders = torch.tensor(CODE_BORDERS, device=magnitude.device)
    below = torch.bucketize(magnitude, borders)
    above = torch.bucketize(magnitude, borders, right=True)
    return torch.where(below % 2 == 0, below, above)


def dequantise(matrix: Nvfp4) -> Tensor:
    codes = torch.stack([matrix.packed & 15, matrix.packed >> 4], -1).flatten(-2).long()
    values = torch.tensor(CODE_VALUES + tuple(-value for value in CODE_VALUES), device=codes.device)[codes]
    scales = matrix.block_scale.float() * matrix.global_scale
    return (values.unflatten(-1, (-1, GROUP)) * scales[..., None]).flatten(-2)
