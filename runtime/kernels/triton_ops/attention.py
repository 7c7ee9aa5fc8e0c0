"""Softmax attention of one new token per sequence over paged keys and values: twins of `torch_ops.attention_rows`.

The tokens that a row sees are cut into at most 64 equal splits, by their number alone; each split is one thread block
per KV head, and a second launch adds the splits up in order. Queries and weights are taken in two parts, so that 16-bit
keys and values cost no more than their own rounding.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.rows import check_aligned, dot_wide, row_kernel, row_sum, sigmoid
from runtime.spec import PAGE_TOKENS

_MOST_SPLITS = 64
_SPLIT_CHUNK = 32
"""Splits that are added at once."""


def write_rows(values: Tensor, pool: Tensor, page_table: Tensor, positions: Tensor) -> None:
    """Store values fp32 [R, H, D], rows contiguous, as the tokens' keys (or values) in pool [pages, 64, H, D]."""
    num_rows, num_heads, head_dim = values.shape
    width = num_heads * head_dim
    _write_kernel[(num_rows,)](
        values, values.stride(0), pool, page_table, page_table.stride(0), positions,
        page_tokens=PAGE_TOKENS, width=width, block=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip


def attend_rows(
    q: Tensor, keys: Tensor, values: Tensor, page_table: Tensor, positions: Tensor, scale: float,
    blocks: Tensor | None = None, block_tokens: int = 0, gate: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """softmax(q k^T * scale) v, fp32 [R, Hq*D]. q fp32 [R, Hq, D], heads contiguous; keys, values [pages, 64, Hkv, D].

    With `blocks` int64 [R, budget], ascending then -1, a row sees only their tokens and those after its last complete
    block; with `gate` fp32 [R, Hq*D], rows contiguous, the result is multiplied by its sigmoid.
    """
    num_rows, num_heads, head_dim = q.shape
    num_kv_heads = keys.shape[2]
    check_aligned(keys=keys, values=values)
    group = num_heads // num_kv_heads
    partial = torch.empty(num_rows, num_heads, _MOST_SPLITS, head_dim, dtype=torch.float32, device=q.device)
    stats = torch.empty(num_rows, num_heads, _MOST_SPLITS, 2, dtype=torch.float32, device=q.device)
    output = torch.empty(num_rows, num_heads * head_dim, dtype=torch.float32, device=q.device)
    budget = 0 if blocks is None else blocks.shape[1]
    dim_tile, token_tile = max(16, triton.next_power_of_2(head_dim)), _token_tile(head_dim, keys.element_size())
    _attend_split_kernel[(num_rows, num_kv_heads, _MOST_SPLITS)](
        q, q.stride(0), q.stride(1), keys, values, page_table, page_table.stride(0), positions, blocks, partial, stats,
        scale * 1.4426950408889634, budget=budget, block_tokens=max(1, block_tokens), page_tokens=PAGE_TOKENS,
        num_kv_heads=num_kv_heads, group=group, lines=max(16, triton.next_power_of_2(group)), head_dim=head_dim,
        dim_tile=dim_tile, tile=token_tile, most_splits=_MOST_SPLITS, num_warps=2 * keys.element_size(),
        num_stages=2 if keys.element_size() == 2 else 1, **begins_early(q.device),
    )  # fmt: skip
    _attend_sum_kernel[(num_rows, num_heads)](
        partial, stats, positions, gate, 0 if gate is None else gate.stride(0), output, budget=budget,
        block_tokens=max(1, block_tokens), has_gate=gate is not None, num_heads=num_heads,
        head_dim=head_dim, dim_tile=dim_tile, tile=token_tile, most_splits=_MOST_SPLITS, chunk=_SPLIT_CHUNK,
        num_warps=8, **begins_early(q.device),
    )  # fmt: skip
    return output


def _token_tile(head_dim: int, element_bytes: int) -> int:
    """Tokens that a thread block holds at once: twice keys and values must fit where shared memory is small."""
    return max(16, min(64, (16 << 10) // (triton.next_power_of_2(head_dim) * element_bytes)))


@row_kernel
def _write_kernel(
    values, stride, pool, page_table, table_stride, positions,
    page_tokens: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    places = tl.arange(0, block)
    is_real = places < width
    position = tl.load(positions + row)
    page = tl.load(page_table + row * table_stride + position // page_tokens)
    target = pool + (page * page_tokens + position % page_tokens) * width + places
    tl.store(target, tl.load(values + row * stride + places, mask=is_real), mask=is_real)


@triton.jit
def _seen(position, budget: tl.constexpr, block_tokens: tl.constexpr):
    """How many tokens a row attends to, and how many of those are in selected blocks."""
    num_tokens = (position + 1).to(tl.int32)
    if budget == 0:
        return num_tokens, 0
    num_complete = num_tokens // block_tokens
    in_blocks = tl.minimum(num_complete, budget) * block_tokens
    return in_blocks + num_tokens - num_complete * block_tokens, in_blocks


@triton.jit
def _split_steps(num_seen, tile: tl.constexpr, most_splits: tl.constexpr):
    """Tiles of one split."""
    num_tiles = (num_seen + tile - 1) // tile
    return (num_tiles + most_splits - 1) // most_splits


@row_kernel
def _attend_split_kernel(
    q, row_stride, head_stride, keys, values, page_table, table_stride, positions, blocks, partial, stats, scale_log2,
    budget: tl.constexpr, block_tokens: tl.constexpr, page_tokens: tl.constexpr, num_kv_heads: tl.constexpr,
    group: tl.constexpr, lines: tl.constexpr, head_dim: tl.constexpr, dim_tile: tl.constexpr, tile: tl.constexpr,
    most_splits: tl.constexpr,
):  # fmt: skip
    """Unnormalised outputs [R, Hq, splits, D], and [R, Hq, splits, 2]: largest score (log2) and sum of weights."""
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    position = tl.load(positions + row)
    num_seen, in_blocks = _seen(position, budget, block_tokens)
    steps = _split_steps(num_seen, tile, most_splits)
    begin, end = split * steps * tile, tl.minimum((split + 1) * steps * tile, num_seen)
    await_last_launch()
    if begin >= num_seen:
        return
    heads, dims = tl.arange(0, lines), tl.arange(0, dim_tile)
    is_head, is_dim = heads < group, dims < head_dim
    places = q + row * row_stride + (kv_head * group + heads)[:, None] * head_stride + dims[None, :]
    query = tl.load(places, mask=is_head[:, None] & is_dim[None, :], other=0.0)
    largest = tl.full((lines,), float("-inf"), tl.float32)
    weight = tl.zeros((lines,), tl.float32)
    total = tl.zeros((lines, dim_tile), tl.float32)
    for first in range(begin, end, tile):
        seen = first + tl.arange(0, tile)
        is_seen = seen < end
        tokens = tl.minimum(seen, num_seen - 1)
        if budget > 0:
            chosen = tl.load(blocks + row * budget + tokens // block_tokens, mask=tokens < in_blocks, other=0)
            after = (position + 1).to(tl.int32) - num_seen + tokens
            tokens = tl.where(tokens < in_blocks, chosen.to(tl.int32) * block_tokens + tokens % block_tokens, after)
        pages = tl.load(page_table + row * table_stride + tokens // page_tokens)
        offsets = ((pages * page_tokens + tokens % page_tokens) * num_kv_heads + kv_head) * head_dim
        is_value = is_seen[:, None] & is_dim[None, :]
        key_places = tl.multiple_of(keys + offsets[:, None] + dims[None, :], (1, 16))
        key = tl.load(key_places, mask=is_value, other=0.0)
        # On its way while the scores are computed.
        value_places = tl.multiple_of(values + offsets[:, None] + dims[None, :], (1, 16))
        value = tl.load(value_places, mask=is_value, other=0.0)
        score = dot_wide(query, key.trans(), tl.zeros((lines, tile), tl.float32)) * scale_log2
        score = tl.where(is_seen[None, :], score, float("-inf"))
        higher = tl.maximum(largest, tl.max(score, 1))
        shrink, weights = tl.exp2(largest - higher), tl.exp2(score - higher[:, None])
        weight = weight * shrink + row_sum(weights, 1)
        total = dot_wide(weights, value, total * shrink[:, None])
        largest = higher
    target = (row * num_kv_heads * group + kv_head * group + heads) * most_splits + split
    tl.store(partial + target[:, None] * head_dim + dims[None, :], total, mask=is_head[:, None] & is_dim[None, :])
    tl.store(stats + 2 * target, largest, mask=is_head)
    tl.store(stats + 2 * target + 1, weight, mask=is_head)


@row_kernel
def _attend_sum_kernel(
    partial, stats, positions, gate, gate_stride, output, budget: tl.constexpr, block_tokens: tl.constexpr,
    has_gate: tl.constexpr, num_heads: tl.constexpr, head_dim: tl.constexpr, dim_tile: tl.constexpr, tile: tl.constexpr,
    most_splits: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    num_seen, _ = _seen(tl.load(positions + row), budget, block_tokens)
    split_tokens = _split_steps(num_seen, tile, most_splits) * tile
    num_splits = (num_seen + split_tokens - 1) // split_tokens
    start = (row * num_heads + head) * most_splits
    every, dims = tl.arange(0, most_splits), tl.arange(0, dim_tile)
    if has_gate:
        # Older than the splits, and younger than what the L1 cache may hold.
        opens = gate + row * gate_stride + head * head_dim + dims
        opened = tl.load(opens, mask=dims < head_dim, other=0.0, cache_modifier=".cg")
    await_last_launch()
    largest = tl.max(tl.load(stats + 2 * (start + every), mask=every < num_splits, other=float("-inf")), 0)
    weight = tl.zeros((), tl.float32)
    total = tl.zeros((dim_tile,), tl.float32)
    for first in range(0, num_splits, chunk):
        splits = first + tl.arange(0, chunk)
        is_split = splits < num_splits
        shrink = tl.exp2(tl.load(stats + 2 * (start + splits), mask=is_split, other=float("-inf")) - largest)
        weight += row_sum(shrink * tl.load(stats + 2 * (start + splits) + 1, mask=is_split, other=0.0), 0)
        places = (start + splits)[:, None] * head_dim + dims[None, :]
        is_value = is_split[:, None] & (dims < head_dim)[None, :]
        total += row_sum(shrink[:, None] * tl.load(partial + places, mask=is_value, other=0.0), 0)
    mixed = total / weight
    if has_gate:
        mixed *= sigmoid(opened)
    tl.store(output + (row * num_heads + head) * head_dim + dims, mixed, mask=dims < head_dim)
