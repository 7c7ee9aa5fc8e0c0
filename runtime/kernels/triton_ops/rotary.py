"""Rotary position embedding. The table of angles is torch's own: once per step, element by element."""

import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.rows import row_kernel


def rotate(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """In place on x [N, heads, D], heads contiguous: the first R dims turn by the table's angles. Returns x."""
    cos, sin = table
    num_rows, num_heads, _ = x.shape
    half = cos.shape[-1]
    _rotate_kernel[(num_rows, num_heads)](
        x, x.stride(0), x.stride(1), cos, sin, half=half, block=triton.next_power_of_2(half), num_warps=1
    )
    return x


@row_kernel
def _rotate_kernel(x, row_stride, head_stride, cos, sin, half: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, block)
    is_real = places < half
    head = x + row * row_stride + tl.program_id(1) * head_stride + places
    c = tl.load(cos + row * half + places, mask=is_real)
    s = tl.load(sin + row * half + places, mask=is_real)
    first = tl.load(head, mask=is_real).to(tl.float32)
    second = tl.load(head + half, mask=is_real).to(tl.float32)
    tl.store(head, first * c - second * s, mask=is_real)
    tl.store(head + half, second * c + first * s, mask=is_real)
