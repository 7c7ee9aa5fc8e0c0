"""Heads of one new token per sequence between their projection and attention: norm, rotary position and place, in one
launch, with what the indexer keeps of it. Twins of the functions of the same name in `torch_ops.attention_rows`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.torch_ops.attention_rows import IndexRows
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
    output = _queries_of(qk, v)
    _launch(qk, scale, eps, table, output, output.shape[1], v, (keys, values, page_table, positions))
    return output


def place_indexed_heads(
    qk: Tensor, v: Tensor, scale: Tensor, eps: float, table: tuple[Tensor, Tensor], keys: Tensor, values: Tensor,
    page_table: Tensor, positions: Tensor, index: IndexRows,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`place_heads`, and of the indexer its queries fp32 [R, h, d], turned, and its keys, as `write_index_rows`."""
    output, index_q = _queries_of(qk, v), torch.empty(index.queries.shape, dtype=torch.float32, device=qk.device)
    _launch(qk, scale, eps, table, output, output.shape[1], v, (keys, values, page_table, positions), index, index_q)
    return output, index_q


def _queries_of(qk: Tensor, v: Tensor) -> Tensor:
    num_rows, num_kv_heads, head_dim = v.shape
    return torch.empty(num_rows, qk.shape[1] - num_kv_heads, head_dim, dtype=torch.float32, device=qk.device)


def _launch(
    x: Tensor, scale: Tensor, eps: float, table: tuple[Tensor, Tensor], output: Tensor, num_heads: int,
    v: Tensor | None = None, pools: tuple[Tensor, ...] = (), index: IndexRows | None = None,
    index_q: Tensor | None = None,
) -> None:  # fmt: skip
    cos, sin = table
    num_rows, num_turned, head_dim = x.shape
    num_kv_heads = num_turned - num_heads
    # Nobody reads what belongs to keys and values where there are none.
    keys, values, page_table, positions = pools or (x,) * 4
    placed = x if v is None else v
    num_index_heads, index_dim = (0, 1) if index is None else index.queries.shape[1:]
    num_blocks = num_turned + num_kv_heads + (0 if index is None else num_index_heads + 1)
    _heads_kernel[(num_rows, num_blocks)](
        x, x.stride(0), x.stride(1), scale, _head_stride(scale), eps, cos, sin, output,
        placed, placed.stride(0), placed.stride(1), keys, values, page_table, page_table.stride(0), positions,
        *_index_arguments(index, index_q, x), num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim,
        half=cos.shape[-1], page_tokens=PAGE_TOKENS, block=triton.next_power_of_2(head_dim),
        num_index_heads=num_index_heads, index_dim=index_dim, index_block=triton.next_power_of_2(index_dim),
        num_slots=1 if index is None else index.keys.shape[1], block_tokens=1 if index is None else index.block_tokens,
        num_warps=1, **begins_early(x.device),
    )  # fmt: skip


def _head_stride(scale: Tensor) -> int:
    return scale.stride(0) if scale.dim() == 2 else 0


def _index_arguments(index: IndexRows | None, index_q: Tensor | None, unread: Tensor) -> tuple[Tensor | int, ...]:
    """The indexer's part of the kernel's arguments."""
    if index is None or index_q is None:
        return unread, 0, 0, unread, 0, unread, unread, 0, unread, unread, unread, unread, unread, unread
    queries, raw_keys = index.queries, index.raw_keys
    return (
        queries, queries.stride(0), queries.stride(1), index.query_scale, _head_stride(index.query_scale), index_q,
        raw_keys, raw_keys.stride(0), index.pending, index.state_rows, index.keys, index.key_scale, *index.block_table,
    )  # fmt: skip


@row_kernel
def _heads_kernel(
    x, row_stride, head_stride, scale, scale_stride, eps, cos, sin, output, v, v_row_stride, v_head_stride, keys,
    values, page_table, table_stride, positions, index_x, index_row_stride, index_head_stride, index_scale,
    index_scale_stride, index_output, raw_keys, raw_stride, pending, state_rows, index_keys, key_scale, block_cos,
    block_sin, num_heads: tl.constexpr, num_kv_heads: tl.constexpr, head_dim: tl.constexpr, half: tl.constexpr,
    page_tokens: tl.constexpr, block: tl.constexpr, num_index_heads: tl.constexpr, index_dim: tl.constexpr,
    index_block: tl.constexpr, num_slots: tl.constexpr, block_tokens: tl.constexpr,
):  # fmt: skip
    """A head to a block: queries, then keys, then values, then index queries, at last the index key."""
    row, head = tl.program_id(0), tl.program_id(1)
    dims = tl.arange(0, block)
    is_real = dims < head_dim
    if num_kv_heads > 0:
        position = tl.load(positions + row)
        page = tl.load(page_table + row * table_stride + position // page_tokens)
    if head < num_heads:
        turned = _turned(x + row * row_stride + head * head_stride, scale + head * scale_stride, eps, cos, sin, row,
                         dims, head_dim, half)  # fmt: skip
        tl.store(output + (row * num_heads + head) * head_dim + dims, turned, mask=is_real)
    elif num_kv_heads > 0:
        if head < num_heads + 2 * num_kv_heads:
            token = page * page_tokens + position % page_tokens
            kv_head = (head - num_heads) % num_kv_heads
            places = (token * num_kv_heads + kv_head) * head_dim + dims
            if head < num_heads + num_kv_heads:
                turned = _turned(x + row * row_stride + head * head_stride, scale + head * scale_stride, eps, cos, sin,
                                 row, dims, head_dim, half)  # fmt: skip
                tl.store(keys + places, turned, mask=is_real)
            else:
                await_last_launch()
                source = v + row * v_row_stride + kv_head * v_head_stride + dims
                tl.store(values + places, tl.load(source, mask=is_real), mask=is_real)
        elif num_index_heads > 0:
            index_head, index_dims = head - (num_heads + 2 * num_kv_heads), tl.arange(0, index_block)
            if index_head < num_index_heads:
                turned = _turned(index_x + row * index_row_stride + index_head * index_head_stride,
                                 index_scale + index_head * index_scale_stride, eps, cos, sin, row, index_dims,
                                 index_dim, half)  # fmt: skip
                target = index_output + (row * num_index_heads + index_head) * index_dim + index_dims
                tl.store(target, turned, mask=index_dims < index_dim)
            else:
                held = pending + tl.load(state_rows + row) * ((block_tokens - 1) * index_dim)
                slot = page * num_slots + position % page_tokens // block_tokens
                _write_index_key(raw_keys + row * raw_stride, held, index_keys + slot * index_dim,
                                 position % block_tokens, key_scale, eps, block_cos, block_sin, row, index_dims,
                                 index_dim, half, block_tokens)  # fmt: skip


@triton.jit
def _turned(x, scale, eps, cos, sin, row, dims, head_dim: tl.constexpr, half: tl.constexpr):
    """One head, normed and rotated: fp32 [block]. Rotation pairs a dim with its partner; both go through the norm.

    Waits for the last launch, which wrote x.
    """
    is_real = dims < head_dim
    partners = tl.where(dims < half, dims + half, tl.where(dims < 2 * half, dims - half, dims))
    own_scale = tl.load(scale + dims, mask=is_real, other=0.0)
    partner_scale = tl.load(scale + partners, mask=is_real, other=0.0)
    angles, is_turned = row * half + dims % half, dims < 2 * half
    c, s = tl.load(cos + angles, mask=is_turned, other=1.0), tl.load(sin + angles, mask=is_turned, other=0.0)
    await_last_launch()
    own = tl.load(x + dims, mask=is_real, other=0.0)
    partner = tl.load(x + partners, mask=is_real, other=0.0)
    factor = tl.rsqrt(row_sum(own * own, 0) / head_dim + eps)
    own = own * factor * own_scale
    partner = partner * factor * partner_scale
    return own * c + tl.where(dims < half, -partner, partner) * s


@triton.jit
def _write_index_key(
    raw, held, target, place, scale, eps, cos, sin, row, dims, width: tl.constexpr, half: tl.constexpr,
    block_tokens: tl.constexpr,
):  # fmt: skip
    """Keep one row's raw key with those of its block in `held`, or finish the block with it and store its key."""
    await_last_launch()
    is_real = dims < width
    newest = tl.load(raw + dims, mask=is_real, other=0.0)
    if place < block_tokens - 1:
        tl.store(held + place * width + dims, newest, mask=is_real)
    else:
        # Rotation pairs a dim with its partner; both go through mean and norm.
        partners = tl.where(dims < half, dims + half, tl.where(dims < 2 * half, dims - half, dims))
        mean, partner = newest, tl.load(raw + partners, mask=is_real, other=0.0)
        for age in tl.static_range(block_tokens - 1):
            mean += tl.load(held + age * width + dims, mask=is_real, other=0.0)
            partner += tl.load(held + age * width + partners, mask=is_real, other=0.0)
        mean /= block_tokens
        factor = tl.rsqrt(row_sum(mean * mean, 0) / width + eps)
        key = mean * factor * tl.load(scale + dims, mask=is_real, other=0.0)
        partner = partner / block_tokens * factor * tl.load(scale + partners, mask=is_real, other=0.0)
        angles, is_turned = row * half + dims % half, dims < 2 * half
        c, s = tl.load(cos + angles, mask=is_turned, other=1.0), tl.load(sin + angles, mask=is_turned, other=0.0)
        key = key * c + tl.where(dims < half, -partner, partner) * s
        tl.store(target + dims, key, mask=is_real)
