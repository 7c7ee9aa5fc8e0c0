"""Products of 1 to 4 rows with dense weights, near the speed at which the weights can be read.

A row of fp32 activations is three bf16 numbers per element, and so three lines of a 16-line tensor-core tile: products
with bf16 and e4m3 weights are exact and are added in fp32. fp32 weights are multiplied in fp32.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.narrow_floats import E4M3_SCALE, e4m3_small
from runtime.kernels.triton_ops.rows import (
    MAX_ROWS,
    check_aligned,
    check_rows,
    dot,
    is_last_arrival,
    row_kernel,
    row_sum,
    silu,
    split_part,
)
from runtime.kernels.triton_ops.workspace import arrival_counters

TILE_LINES = 16
"""Lines of the narrowest tensor-core tile."""
_BLOCKS_WANTED = 320
"""Blocks that keep the memory of a large card busy."""


@dataclass(frozen=True)
class DenseTiling:
    """How a product [N] = W[N, K] x is cut up. It decides the order of sums: shape and type alone choose it."""

    block_n: int
    block_k: int
    num_splits: int
    """Blocks that share a tile's K, added in order by the last to arrive."""

    @classmethod
    def of(cls, num_outputs: int, width: int, dtype: torch.dtype) -> "DenseTiling":
        """Raises ValueError for widths that are not multiples of 16."""
        if width % 16:
            raise ValueError(f"dense weights need a width that is a multiple of 16, not {width}")
        widest = {torch.uint8: 256, torch.bfloat16: 128, torch.float32: 64}[dtype]
        # The largest power of two that divides the width.
        block_k = min(widest, width & -width)
        num_steps, num_tiles = width // block_k, triton.cdiv(num_outputs, 32)
        num_splits = 1
        while num_splits < 16 and num_tiles * num_splits < _BLOCKS_WANTED and num_steps >= 4 * num_splits:
            num_splits *= 2
        return cls(32, block_k, num_splits)


def linear(x: Tensor, weight: Tensor, scale: Tensor | None = None, output: Tensor | None = None) -> Tensor:
    """x @ weight^T, times `scale` [O] by output. x fp32 [N, K], N <= 4; weight bf16, fp32, or e4m3 bytes uint8 [O, K].

    Returns fp32 [N, O], or `output`, whose rows may be longer. Raises ValueError for shapes and alignments that the
    kernel does not take.
    """
    num_rows, width = x.shape
    num_outputs = weight.shape[0]
    check_rows(num_rows)
    check_aligned(x=x, weight=weight)
    tiling = DenseTiling.of(num_outputs, width, weight.dtype)
    num_tiles = triton.cdiv(num_outputs, tiling.block_n)
    if output is None:
        output = torch.empty(num_rows, num_outputs, dtype=torch.float32, device=x.device)
    # Neither is used by blocks that share nothing.
    partial = counters = output
    if tiling.num_splits > 1:
        counters = arrival_counters(x.device, num_tiles)
        shape = (num_tiles, tiling.num_splits, MAX_ROWS, tiling.block_n)
        partial = torch.empty(shape, dtype=torch.float32, device=x.device)
    _linear_kernel[(num_tiles, tiling.num_splits)](
        x, x.stride(0), weight, scale, output, output.stride(0), partial, counters, num_rows,
        num_outputs=num_outputs, width=width, has_scale=scale is not None,
        block_n=tiling.block_n, block_k=tiling.block_k, num_splits=tiling.num_splits, max_rows=MAX_ROWS,
        num_warps=4, num_stages=4,
    )  # fmt: skip
    return output


@row_kernel
def _linear_kernel(
    x, x_stride, weight, scale, output, output_stride, partial, counters, num_rows,
    num_outputs: tl.constexpr, width: tl.constexpr, has_scale: tl.constexpr,
    block_n: tl.constexpr, block_k: tl.constexpr, num_splits: tl.constexpr, max_rows: tl.constexpr,
):  # fmt: skip
    tile, split = tl.program_id(0), tl.program_id(1)
    outputs = tile * block_n + tl.arange(0, block_n)
    steps: tl.constexpr = width // block_k
    begin = split * steps // num_splits * block_k
    end = (split + 1) * steps // num_splits * block_k
    weight_rows = weight + tl.minimum(outputs, num_outputs - 1).to(tl.int64) * width
    total = multiply_rows(x, x_stride, num_rows, weight_rows, begin, end, block_n, block_k, max_rows, False)
    if num_splits > 1:
        places = tl.arange(0, max_rows)[:, None] * block_n + tl.arange(0, block_n)[None, :]
        partials = partial + tile * (num_splits * max_rows * block_n) + places
        tl.store(partials + split * (max_rows * block_n), total, cache_modifier=".cg")
        if not is_last_arrival(counters + tile, num_splits):
            return
        total = tl.zeros((max_rows, block_n), tl.float32)
        for earlier in tl.static_range(num_splits):
            total += tl.load(partials + earlier * (max_rows * block_n), cache_modifier=".cg")
    if has_scale:
        total *= tl.load(scale + outputs, mask=outputs < num_outputs, other=0.0)[None, :]
    rows = tl.arange(0, max_rows)[:, None]
    is_real = (rows < num_rows) & (outputs < num_outputs)[None, :]
    tl.store(output + rows * output_stride + outputs[None, :], total, mask=is_real)


@triton.jit
def multiply_rows(
    x, x_stride, num_rows, weight_rows, begin, end,
    block_n: tl.constexpr, block_k: tl.constexpr, max_rows: tl.constexpr, activates: tl.constexpr,
):  # fmt: skip
    """fp32 [max_rows, block_n]: x[:, begin:end] (through silu with `activates`) times the weights at `weight_rows`.

    Steps of block_k in rising order; begin and end are multiples of it.
    """
    is_wide: tl.constexpr = weight_rows.dtype.element_ty == tl.float32
    rows = tl.arange(0, max_rows)[:, None]
    num_parts: tl.constexpr = 16 // max_rows
    # Lines 4p + r of the tile hold part p of row r; with fp32 weights part 0 is the row itself and the others are zero.
    part = tl.arange(0, num_parts)[:, None, None]
    total = tl.zeros((16, block_n), tl.float32)
    for step in range(begin, end, block_k):
        places = step + tl.arange(0, block_k)
        pointers = weight_rows[:, None] + places[None, :]
        weights = tl.load(tl.multiple_of(pointers, (1, 16)), eviction_policy="evict_first")
        pointers = x + rows * x_stride + places[None, :]
        values = tl.load(tl.multiple_of(pointers, (1, 16)), mask=rows < num_rows, other=0.0)
        if activates:
            values = silu(values)
        lines = tl.broadcast_to(values[None], (num_parts, max_rows, block_k))
        lines = tl.where(part == 0, lines, 0.0) if is_wide else split_part(lines, part, tl.bfloat16)
        if weights.dtype == tl.uint8:
            weights = (e4m3_small(weights.to(tl.int8, bitcast=True)) * E4M3_SCALE).to(tl.bfloat16)
        total = dot(tl.reshape(lines, (16, block_k)), weights.trans(), total)
    return row_sum(tl.reshape(total, (num_parts, max_rows, block_n)), axis=0)


def silu_product(gate_up: Tensor, width: int) -> Tensor:
    """silu(gate) * up, fp32 [N, width], of rows [gate, up, ...] fp32."""
    check_rows(gate_up.shape[0])
    output = torch.empty(gate_up.shape[0], width, dtype=torch.float32, device=gate_up.device)
    block = min(1024, triton.next_power_of_2(width))
    _silu_product_kernel[(gate_up.shape[0], triton.cdiv(width, block))](
        gate_up, gate_up.stride(0), output, width=width, block=block, num_warps=4
    )
    return output


@row_kernel
def _silu_product_kernel(gate_up, stride, output, width: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0)
    places = tl.program_id(1) * block + tl.arange(0, block)
    is_real = places < width
    gate = tl.load(gate_up + row * stride + places, mask=is_real)
    up = tl.load(gate_up + row * stride + width + places, mask=is_real)
    tl.store(output + row * width + places, silu(gate) * up, mask=is_real)
