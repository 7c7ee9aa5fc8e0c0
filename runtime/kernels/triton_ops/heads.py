"""Heads of one new token per sequence between their projection and attention: norm, rotary position and place, in one
launch. Twins of the functions of the same name in `torch_ops.attention_rows`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.rows import row_kernel, row_sum
from runtime.spec import PAGE_TOKENS


def turn_heads(x: Tensor, scale: Tensor, eps: float, table: tuple[Tensor, Tensor]) -> Tensor:
    """rms_norm of every head, then rotated: fp32 [R, H, D] of x fp32 [R, H, D], heads contiguous; scale [D] or [H, D].

    `table` are cos and sin [R, 1, half].
    """
    num_rows, num_heads, head_dim = x.shape
    output = torch.empty(num_rows, num_heads, head_dim, dtype=torch.float32, device=x.device)
    _launch(x, scale, eps, table, output, num_heads)
    return output


def place_heads(
    qk: Tensor, v: Tensor, scale: Tensor, eps: float, table: tuple[Tensor, Tensor], keys: Tensor, values: Tensor,
    page_table: Tensor, positions: Tensor,
) -> Tensor:  # fmt: skip
    """Queries fp32 [R, Hq, D], turned; keys, turned, and values go to their places in the pools [pages, 64, Hkv, D].

    qk fp32 [R, Hq + Hkv, D] and v fp32 [R, Hkv, D], heads contiguous; scale [Hq + Hkv, D]; the rest as of `write_rows`.
    """
    num_rows, num_kv_heads, head_dim = v.shape
    num_heads = qk.shape[1] - num_kv_heads
    output = torch.empty(num_rows, num_heads, head_dim, dtype=torch.float32, device=qk.device)
    _launch(qk, scale, eps, table, output, num_heads, v, (keys, values, page_table, positions))
    return output


def _launch(
    x: Tensor, scale: Tensor, eps: float, table: tuple[Tensor, Tensor], output: Tensor, num_heads: int,
    v: Tensor | None = None, pools: tuple[Tensor, ...] = (),
) -> None:  # fmt: skip
    cos, sin = table
    num_rows, num_turned, head_dim = x.shape
    num_kv_heads = num_turned - num_heads
    # Nobody reads what belongs to keys and values where there are none.
    keys, values, page_table, positions = pools or (x,) * 4
    placed = x if v is None else v
    _heads_kernel[(num_rows, num_turned + num_kv_heads)](
        x, x.stride(0), x.stride(1), scale, scale.stride(0) if scale.dim() == 2 else 0, eps, cos, sin, output,
        placed, placed.stride(0), placed.stride(1), keys, values, page_table, page_table.stride(0), positions,
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, half=cos.shape[-1],
        page_tokens=PAGE_TOKENS, block=triton.next_power_of_2(head_dim), num_warps=1,
        **begins_early(x.device),
    )  # fmt: skip


@row_kernel
def _heads_kernel(
    x, row_stride, head_stride, scale, scale_stride, eps, cos, sin, output, v, v_row_stride, v_head_stride, keys,
    values, page_table, table_stride, positions, num_heads: tl.constexpr, num_kv_heads: tl.constexpr,
    head_dim: tl.constexpr, half: tl.constexpr, page_tokens: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """A head to a block: queries, then keys, then values."""
    await_last_launch()
    row, head = tl.program_id(0), tl.program_id(1)
    dims = tl.arange(0, block)
    is_real = dims < head_dim
    if head < num_heads:
        turned = _turned(x + row * row_stride + head * head_stride, scale + head * scale_stride, eps, cos, sin, row,
                         dims, head_dim, half)  # fmt: skip
        tl.store(output + (row * num_heads + head) * head_dim + dims, turned, mask=is_real)
    elif num_kv_heads > 0:
        position = tl.load(positions + row)
        page = tl.load(page_table + row * table_stride + position // page_tokens)
        token = page * page_tokens + position % page_tokens
        kv_head = (head - num_heads) % num_kv_heads
        places = (token * num_kv_heads + kv_head) * head_dim + dims
        if head < num_heads + num_kv_heads:
            turned = _turned(x + row * row_stride + head * head_stride, scale + head * scale_stride, eps, cos, sin, row,
                             dims, head_dim, half)  # fmt: skip
            tl.store(keys + places, turned, mask=is_real)
        else:
            source = v + row * v_row_stride + kv_head * v_head_stride + dims
            tl.store(values + places, tl.load(source, mask=is_real), mask=is_real)


@triton.jit
def _turned(x, scale, eps, cos, sin, row, dims, head_dim: tl.constexpr, half: tl.constexpr):
    """One head, normed and rotated: fp32 [block]. Rotation pairs a dim with its partner; both go through the norm."""
    is_real = dims < head_dim
    partners = tl.where(dims < half, dims + half, tl.where(dims < 2 * half, dims - half, dims))
    own = tl.load(x + dims, mask=is_real, other=0.0)
    factor = tl.rsqrt(row_sum(own * own, 0) / head_dim + eps)
    own = own * factor * tl.load(scale + dims, mask=is_real, other=0.0)
    partner = tl.load(x + partners, mask=is_real, other=0.0) * factor
    partner *= tl.load(scale + partners, mask=is_real, other=0.0)
    angles, is_turned = row * half + dims % half, dims < 2 * half
    c, s = tl.load(cos + angles, mask=is_turned, other=1.0), tl.load(sin + angles, mask=is_turned, other=0.0)
    return own * c + tl.where(dims < half, -partner, partner) * s
