"""The indexer of sparse attention in a decode step: block scores, and the best blocks of each row.

Equal scores go to the lower block. Selection is exact: the best `budget` blocks lie in the `budget` groups of blocks
with the best maxima, and those few are ranked within one thread block; all blocks at once where there are no more.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.rows import (
    check_aligned,
    dot,
    dot_wide,
    ordered_bits,
    places_of_largest,
    row_kernel,
    row_sum,
    split_part,
)
from runtime.spec import PAGE_TOKENS

_GROUP_BLOCKS = 8
"""Blocks of one group."""
_SCORE_BLOCKS = 128
"""Blocks that one thread block scores."""
_SELECT_WARPS, _SELECT_VALUES = 16, 256
"""Most warps of the one thread block that ranks a row's blocks, and how many values each is to have at least."""


def select_rows(
    index_q: Tensor, index_keys: Tensor, page_table: Tensor, positions: Tensor, budget: int, block_tokens: int
) -> Tensor:
    """Numbers of each row's `budget` best complete blocks, int64 [R, budget], ascending, then -1.

    index_q fp32 [R, h, d]; index_keys [pages, slots, d]; sequences up to what page_table [R, P] can hold.
    """
    num_rows, num_heads, head_dim = index_q.shape
    most_blocks = page_table.shape[1] * PAGE_TOKENS // block_tokens
    num_groups = triton.cdiv(most_blocks, _SCORE_BLOCKS) * (_SCORE_BLOCKS // _GROUP_BLOCKS)
    check_aligned(index_q=index_q, index_keys=index_keys)
    scores = torch.empty(num_rows, num_groups * _GROUP_BLOCKS, dtype=torch.float32, device=index_q.device)
    maxima = torch.empty(num_rows, num_groups, dtype=torch.float32, device=index_q.device)
    _score_kernel[(num_rows, triton.cdiv(most_blocks, _SCORE_BLOCKS))](
        index_q, index_keys, page_table, page_table.stride(0), positions, scores, maxima, num_groups, budget,
        num_heads=num_heads, head_tile=max(4, triton.next_power_of_2(num_heads)), head_dim=head_dim,
        dim_tile=max(16, triton.next_power_of_2(head_dim)), num_slots=index_keys.shape[1], page_tokens=PAGE_TOKENS,
        block_tokens=block_tokens, group=_GROUP_BLOCKS, block=_SCORE_BLOCKS, num_warps=2 * index_keys.element_size(),
        **begins_early(index_q.device),
    )  # fmt: skip
    selected = torch.empty(num_rows, budget, dtype=torch.int64, device=index_q.device)
    # No more groups can be candidates than there are.
    is_narrowed, candidate_tile = num_groups > budget, triton.next_power_of_2(min(num_groups, budget))
    candidates = torch.empty(num_rows, budget, dtype=torch.int32, device=index_q.device) if is_narrowed else None
    group_tile, budget_tile = triton.next_power_of_2(num_groups), triton.next_power_of_2(budget)
    most_values = max(group_tile if is_narrowed else 0, candidate_tile * _GROUP_BLOCKS)
    _select_kernel[(num_rows,)](
        scores, maxima, candidates, positions, selected, num_groups, budget, block_tokens=block_tokens,
        group=_GROUP_BLOCKS, group_tile=group_tile, candidate_tile=candidate_tile, budget_tile=budget_tile,
        num_warps=min(max(most_values // _SELECT_VALUES, 4), _SELECT_WARPS), **begins_early(index_q.device),
    )  # fmt: skip
    return selected


@row_kernel
def _score_kernel(
    index_q, index_keys, page_table, table_stride, positions, scores, maxima, num_groups, budget,
    num_heads: tl.constexpr, head_tile: tl.constexpr, head_dim: tl.constexpr, dim_tile: tl.constexpr,
    num_slots: tl.constexpr, page_tokens: tl.constexpr, block_tokens: tl.constexpr, group: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """scores [R, groups * group], -1 for blocks that are not complete, and each group's best, maxima [R, groups]."""
    row, tile = tl.program_id(0), tl.program_id(1)
    num_complete = (tl.load(positions + row) + 1) // block_tokens
    blocks, dims = tile * block + tl.arange(0, block), tl.arange(0, dim_tile)
    is_complete, is_dim = blocks < num_complete, dims < head_dim
    last_tokens = tl.minimum(blocks + 1, num_complete) * block_tokens - 1
    pages = tl.load(page_table + row * table_stride + last_tokens // page_tokens)
    slots = pages * num_slots + last_tokens % page_tokens // block_tokens
    # The newest key may be the last launch's.
    await_last_launch()
    if num_complete <= budget or tile * block >= num_complete:
        return
    places = tl.multiple_of(index_keys + slots[:, None] * head_dim + dims[None, :], (1, 16))
    keys = tl.load(places, mask=is_dim[None, :], other=0.0)
    heads = tl.arange(0, head_tile)
    is_query = (heads < num_heads)[:, None] & is_dim[None, :]
    query = tl.load(index_q + (row * num_heads + heads[:, None]) * head_dim + dims[None, :], mask=is_query, other=0.0)
    # Lines of the tile: part by part of every head; fp32 keys need one part alone.
    part = tl.arange(0, 4)[:, None, None]
    lines = tl.broadcast_to(query[None], (4, head_tile, dim_tile))
    products = tl.zeros((4 * head_tile, block), tl.float32)
    if keys.dtype == tl.float32:
        lines = tl.where(part == 0, lines, 0.0)
        products = dot_wide(tl.reshape(lines, (4 * head_tile, dim_tile)), keys.trans(), products)
    else:
        lines = split_part(lines, part, keys.dtype)
        products = dot(tl.reshape(lines, (4 * head_tile, dim_tile)), keys.trans(), products)
    by_head = row_sum(tl.reshape(products, (4, head_tile, block)), 0)
    score = row_sum(tl.maximum(by_head, 0.0), 0) * (head_dim**-0.5)
    score = tl.where(is_complete, score, -1.0)
    tl.store(scores + row * num_groups * group + blocks, score)
    best = tl.max(tl.reshape(score, (block // group, group)), 1)
    tl.store(maxima + row * num_groups + tile * (block // group) + tl.arange(0, block // group), best)


@row_kernel
def _select_kernel(
    scores, maxima, candidates, positions, selected, num_groups, budget, block_tokens: tl.constexpr,
    group: tl.constexpr, group_tile: tl.constexpr, candidate_tile: tl.constexpr, budget_tile: tl.constexpr,
):  # fmt: skip
    """Without `candidates` no row can have more groups than the budget, and all blocks are ranked at once."""
    row = tl.program_id(0)
    num_complete = ((tl.load(positions + row) + 1) // block_tokens).to(tl.int32)
    await_last_launch()
    chosen = selected + row * budget
    ranks = tl.arange(0, budget_tile)
    if num_complete <= budget:
        tl.store(chosen + ranks, tl.where(ranks < num_complete, ranks, -1).to(tl.int64), mask=ranks < budget)
        return
    members = tl.arange(0, candidate_tile * group)[None, :]
    blocks, is_member = members, members < num_complete
    if candidates is not None:
        listed, num_full = candidates + row * budget, (num_complete + group - 1) // group
        _list_candidates(maxima + row * num_groups, listed, num_full, budget, group_tile)
        is_member = members // group < tl.minimum(num_full, budget)
        blocks = _members(listed, members, is_member, group)
    score = tl.load(scores + row * num_groups * group + blocks, mask=is_member, other=-1.0)
    places = places_of_largest(ordered_bits(score), budget)
    if candidates is not None:
        # Read again, since registers are short.
        tl.debug_barrier()
        blocks = _members(listed, members, is_member, group)
    tl.store(chosen + places, blocks.to(tl.int64), mask=places >= 0)


@triton.jit
def _list_candidates(maxima, listed, num_full, budget, group_tile: tl.constexpr):
    """The up to `budget` best of a row's groups, ascending, for all threads to read."""
    groups = tl.arange(0, group_tile)[None, :]
    places, is_full = groups, groups < num_full
    if num_full > budget:
        best = tl.load(maxima + groups, mask=is_full, other=-1.0)
        places = places_of_largest(ordered_bits(best), budget)
    tl.store(listed + places, groups, mask=is_full & (places >= 0))
    tl.debug_barrier()


@triton.jit
def _members(groups, members, is_member, group: tl.constexpr):
    """Blocks int32 of the listed groups, one group after the other."""
    return tl.load(groups + members // group, mask=is_member, other=0) * group + members % group
