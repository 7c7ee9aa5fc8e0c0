"""Hashed n-gram ids of one new token per sequence, and the gate of what they look up: twins of `torch_ops.ngram`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.rows import row_kernel, row_sum, sigmoid


def context_rows(pool: Tensor, token_ids: Tensor, state_rows: Tensor, break_id: int) -> Tensor:
    """Contexts int64 [n, R]; the histories `state_rows` of pool int64 [rows, n-1] move on. token_ids int64 [R]."""
    num_rows, num_before = token_ids.shape[0], pool.shape[1]
    contexts = torch.empty(num_before + 1, num_rows, dtype=torch.int64, device=pool.device)
    _context_kernel[(num_rows,)](
        pool, token_ids, state_rows, break_id, contexts, num_rows, num_before=num_before, num_warps=1
    )
    return contexts


def ngram_ids(contexts: Tensor, multipliers: Tensor, head_sizes: Tensor, head_offsets: Tensor) -> Tensor:
    """Table rows int64 [T, heads] of contexts int64 [n, T], contiguous; see the twin for the formula."""
    order, num_tokens = contexts.shape
    num_heads = head_sizes.shape[0]
    ids = torch.empty(num_tokens, num_heads, dtype=torch.int64, device=contexts.device)
    _ids_kernel[(num_tokens,)](
        contexts, num_tokens, multipliers, head_sizes, head_offsets, ids,
        order=order, num_heads=num_heads, block=triton.next_power_of_2(num_heads), num_warps=1,
    )  # fmt: skip
    return ids


def ngram_gate(keys: Tensor, queries: Tensor) -> Tensor:
    """Sigmoid of the signed root of <key, query>/sqrt(H), fp32 [T, S, 1]; keys, queries fp32 [T, S, H], contiguous."""
    num_tokens, num_streams, width = keys.shape
    gate = torch.empty(num_tokens, num_streams, 1, dtype=torch.float32, device=keys.device)
    _gate_kernel[(num_tokens * num_streams,)](
        keys, queries, gate, width=width, block=triton.next_power_of_2(width), num_warps=4
    )
    return gate


@row_kernel
def _context_kernel(pool, token_ids, state_rows, break_id, contexts, num_rows, num_before: tl.constexpr):
    row = tl.program_id(0)
    history = pool + tl.load(state_rows + row) * num_before
    token = tl.load(token_ids + row)
    tl.store(contexts + row, token)
    is_broken = token != token
    for distance in tl.static_range(1, num_before + 1):
        earlier = tl.load(history + num_before - distance)
        seen = tl.where(is_broken, break_id, earlier)
        tl.store(contexts + distance * num_rows + row, seen)
        is_broken = seen == break_id
    for place in tl.static_range(num_before - 1):
        tl.store(history + place, tl.load(history + place + 1))
    tl.store(history + num_before - 1, token)


@row_kernel
def _ids_kernel(
    contexts, num_tokens, multipliers, head_sizes, head_offsets, ids,
    order: tl.constexpr, num_heads: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    heads = tl.arange(0, block)
    is_real = heads < num_heads
    mix = tl.load(contexts + token) * tl.load(multipliers)
    mixes = tl.zeros((block,), tl.int64)
    for distance in tl.static_range(1, order):
        mix = mix ^ (tl.load(contexts + distance * num_tokens + token) * tl.load(multipliers + distance))
        mixes = tl.where(heads // (num_heads // (order - 1)) == distance - 1, mix, mixes)
    sizes = tl.load(head_sizes + heads, mask=is_real, other=1)
    # A mix is never negative, so that the remainder is the one of floor division.
    tl.store(ids + token * num_heads + heads, mixes % sizes + tl.load(head_offsets + heads, is_real), mask=is_real)


@row_kernel
def _gate_kernel(keys, queries, gate, width: tl.constexpr, block: tl.constexpr):
    stream = tl.program_id(0)
    places = tl.arange(0, block)
    is_real = places < width
    key = tl.load(keys + stream * width + places, mask=is_real, other=0.0)
    query = tl.load(queries + stream * width + places, mask=is_real, other=0.0)
    product = row_sum(key * query, 0) * (width**-0.5)
    root = tl.sqrt(tl.maximum(tl.abs(product), 1e-6))
    sign = tl.where(product > 0, 1.0, tl.where(product < 0, -1.0, 0.0))
    tl.store(gate + stream, sigmoid(root * sign))
