"""NVFP4 numbers: e2m1 codes in pairs, one e4m3 scale per 16 inputs, one fp32 scale per matrix (ModelOpt's layout).

W[n, k] = e2m1(code) * e4m3(scale[n, k // 16]) * global_scale. The low nibble of byte j is k = 2j, the high one 2j + 1.
An e2m1 value has 2 significant bits and an e4m3 value 4, so their product is exact in fp32, bf16 and fp16; the global
scale is left to the matmul's epilogue. Refuses nothing: shapes are checked where records are packed.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

GROUP = 16
CODE_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
CODE_BORDERS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Halfway points between neighbouring magnitudes; a tie goes to the even code."""
LARGEST = 6.0 * 448.0
"""Largest magnitude of code times scale."""
SMALLEST_SCALE = 2.0**-9


def _build_pair_table() -> Tensor:
    """[256] float64 words, each two fp32 values side by side: one lookup turns a byte into both of its values."""
    magnitudes = torch.tensor(CODE_VALUES)
    values = torch.cat([magnitudes, -magnitudes])
    byte = torch.arange(256)
    return torch.stack([values[byte & 15], values[byte >> 4]], -1).view(torch.float64).flatten()


PAIRS = _build_pair_table()
SCALES = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
"""[256] fp32: what each e4m3 bit pattern means."""


@lru_cache(maxsize=8)
def tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """`PAIRS` and `SCALES` on a device."""
    return PAIRS.to(device), SCALES.to(device)


# A table lookup by int32 index of one-dimensional tensors is the fastest exact way torch has on a CPU. For the demo's
# four experts (221,184 code bytes): 0.17 ms; rows of a [256, 2] table 0.46; an embedding of byte pairs 0.22 with two
# threads and 0.44 with one; shifting nibbles into fp16 bits 0.19 and 0.26; e4m3 bits and torch's own cast 1.0.


def unscaled_values(codes: Tensor, scales: Tensor) -> Tensor:
    """fp32 [..., K] of codes uint8 [..., K/2] and e4m3 bits uint8 [..., ceil(K/16)]; no global scale. Exact."""
    all_pairs, all_scales = tables(codes.device)
    pairs = torch.index_select(all_pairs, 0, codes.flatten().int()).view(torch.float32)
    factors = torch.index_select(all_scales, 0, scales.flatten().int()).view(scales.shape)
    return apply_scales(pairs.view(*codes.shape[:-1], 2 * codes.shape[-1]), factors)


def apply_scales(values: Tensor, factors: Tensor) -> Tensor:
    """Multiply fp32 values [..., K] in place by one factor per group, [..., ceil(K/16)]."""
    if values.shape[-1] % GROUP:
        return values.mul_(factors.repeat_interleave(GROUP, -1)[..., : values.shape[-1]])
    values.unflatten(-1, (-1, GROUP)).mul_(factors.unsqueeze(-1))
    return values


def dequantise(codes: Tensor, scales: Tensor, global_scale: float | Tensor) -> Tensor:
    """fp32 [..., K]: the weights themselves."""
    return unscaled_values(codes, scales) * global_scale


def quantise(weight: Tensor, global_scale: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Round weight [N, K] (K even) to codes uint8 [N, K/2], e4m3 bits uint8 [N, ceil(K/16)] and a fp32 scalar.

    Global scale amax / 2688; block scale amax16 / 6 / global scale, kept within [2^-9, 448]; codes to nearest, ties to
    even, as ModelOpt rounds.
    """
    width = weight.shape[-1]
    blocks = functional.pad(weight.float(), (0, -width % GROUP)).unflatten(-1, (-1, GROUP))
    if global_scale is None:
        global_scale = shared_global_scale(weight)
    wanted = blocks.abs().amax(-1) / CODE_VALUES[-1] / global_scale
    scales = wanted.clamp(SMALLEST_SCALE, 448.0).to(torch.float8_e4m3fn)
    magnitudes = nearest_codes((blocks / (scales.float() * global_scale).unsqueeze(-1)).abs())
    codes = (magnitudes | (torch.signbit(blocks).long() << 3)).to(torch.uint8).flatten(-2)[..., :width]
    return codes[..., 0::2] | (codes[..., 1::2] << 4), scales.view(torch.uint8), global_scale


def shared_global_scale(*weights: Tensor) -> Tensor:
    """fp32 []: amax / 2688 over matrices that are quantised together, as gate and up of one expert are."""
    largest = torch.stack([weight.abs().amax() for weight in weights]).amax().float()
    return largest.clamp_min(1e-12) / LARGEST


def nearest_codes(magnitudes: Tensor) -> Tensor:
    """Index (int64) of the nearest e2m1 magnitude, ties to the even index."""
    borders = torch.tensor(CODE_BORDERS, device=magnitudes.device)
    lower = torch.bucketize(magnitudes, borders)
    upper = torch.bucketize(magnitudes, borders, right=True)
    return torch.where(lower % 2 == 0, lower, upper)
