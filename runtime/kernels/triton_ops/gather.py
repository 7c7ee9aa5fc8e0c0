"""Rows of a table of bytes that may lie in pinned host memory: read where it is, a few rows per token."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def gather_rows(table: Tensor, ids: Tensor) -> Tensor:
    """uint8 [N, row_bytes] on the ids' device. table uint8 [rows, row_bytes], contiguous, on that device or in host
    memory that it reads; ids int64 [N]."""
    row_bytes = table.shape[1]
    rows = torch.empty(ids.shape[0], row_bytes, dtype=torch.uint8, device=ids.device)
    _gather_kernel[(ids.shape[0],)](table, ids, rows, row_bytes, triton.next_power_of_2(row_bytes), num_warps=1)
    return rows


@triton.jit
def _gather_kernel(table, ids, rows, row_bytes: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, block)
    is_byte = places < row_bytes
    values = tl.load(table + tl.load(ids + row) * row_bytes + places, mask=is_byte, other=0)
    tl.store(rows + row.to(tl.int64) * row_bytes + places, values, mask=is_byte)
