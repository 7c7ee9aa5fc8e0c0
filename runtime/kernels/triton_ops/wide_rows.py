"""Sums of plain and FP8 rows of a record times one vector, in fp32, for kernels over routed experts."""

import triton
import triton.language as tl

from runtime.kernels.triton_ops.narrow_floats import E4M3_SCALE, e4m3_small
from runtime.record import FP8_BLOCK

_TILE = tl.constexpr(FP8_BLOCK)
"""Inputs in a tile, so that a row of it has one scale."""
STORED_TYPES = {"bf16": tl.bfloat16, "fp16": tl.float16, "fp32": tl.float32, "fp8": tl.int8}


@triton.jit
def sum_wide_rows(
    matrix_ptr, scales_ptr, x_ptr, rows, is_row, WIDTH: tl.constexpr, ROWS: tl.constexpr, TYPE: tl.constexpr
):
    """fp32 [ROWS]: rows int64 of the matrix times x [WIDTH]. TYPE is one of `STORED_TYPES`; pointers are to bytes."""
    HAS_SCALES: tl.constexpr = TYPE.is_int()
    values_ptr = matrix_ptr.to(tl.pointer_type(TYPE))
    block_ptr = scales_ptr.to(tl.pointer_type(tl.float32))
    total = tl.zeros([ROWS, _TILE], tl.float32)
    for first in range(0, WIDTH, _TILE):
        columns = first + tl.arange(0, _TILE)
        is_column = columns < WIDTH
        x = tl.load(x_ptr + columns, mask=is_column, other=0.0).to(tl.float32)
        is_weight = is_row[:, None] & is_column[None, :]
        stored = tl.load(values_ptr + rows[:, None] * WIDTH + columns[None, :], mask=is_weight, other=0)
        if HAS_SCALES:
            blocks = rows * ((WIDTH + _TILE - 1) // _TILE) + first // _TILE
            scales = tl.load(block_ptr + blocks, mask=is_row, other=0.0)
            weights = e4m3_small(stored) * E4M3_SCALE * scales[:, None]
        else:
            weights = stored.to(tl.float32)
        total = tl.fma(weights, x[None, :], total)
    return tl.sum(total, 1)
