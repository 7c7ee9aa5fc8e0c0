"""Softmax attention over paged keys and values, and the block selection of sparse attention.

Sparse attention (transformers' Qwen4ExpTextQSAIndexer): a query that sees n tokens sees n // R complete blocks of R
tokens; it attends to the tokens of its best `budget` blocks and to the n % R tokens after the last complete block.
"""

from itertools import groupby

import torch
from torch import Tensor

QUERY_TILE = 32
"""Queries whose scores are held at once."""
DEVICE_QUERY_TILE = 16
"""The same on a GPU: scores of a long context take memory that slots could have."""


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None) -> Tensor:
    """softmax(q k^T * scale) v with grouped KV heads: query head h reads KV head h // (Hq // Hkv).

    q [T, Hq, D]; k, v [S, Hkv, D]; mask bool [T, S], True = visible (None: all). Returns [T, Hq*D].
    """
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    group = num_heads // num_kv_heads
    grouped = q.view(num_tokens, num_kv_heads, group, head_dim).permute(1, 2, 0, 3)
    scores = torch.bmm(grouped.reshape(num_kv_heads, group * num_tokens, head_dim), k.permute(1, 2, 0)).mul_(scale)
    if mask is not None:
        scores.view(num_kv_heads, group, num_tokens, -1).masked_fill_(~mask, float("-inf"))
    mixed = torch.bmm(torch.softmax(scores, dim=-1), v.transpose(0, 1))
    return mixed.view(num_kv_heads, group, num_tokens, head_dim).permute(2, 0, 1, 3).reshape(num_tokens, -1)


def attend_causal(q: Tensor, k: Tensor, v: Tensor, scale: float, start: int, selected: Tensor | None = None) -> Tensor:
    """Causal attention of T queries at positions start, start+1, … over keys 0 … start+T-1.

    q [T, Hq, D]; k, v [start+T, Hkv, D]; selected bool [T, start+T] narrows what a query sees. Returns [T, Hq*D].
    """
    outputs = []
    tile = DEVICE_QUERY_TILE if q.is_cuda else QUERY_TILE
    for begin in range(0, q.shape[0], tile):
        end = min(begin + tile, q.shape[0])
        num_visible = start + end
        last_visible = torch.arange(start + begin, num_visible, device=q.device).unsqueeze(1)
        mask = torch.arange(num_visible, device=q.device) <= last_visible
        if selected is not None:
            mask &= selected[begin:end, :num_visible]
        outputs.append(attend(q[begin:end], k[:num_visible], v[:num_visible], scale, mask))
    return torch.cat(outputs)


def block_scores(q: Tensor, block_keys: Tensor) -> Tensor:
    """sum over heads of relu(q_h . key_b) / sqrt(d). q fp32 [T, h, d]; block_keys fp32 [B, d]; returns [T, B]."""
    num_tokens, num_heads, head_dim = q.shape
    products = q.reshape(num_tokens * num_heads, head_dim) @ block_keys.t()
    return products.relu_().view(num_tokens, num_heads, -1).sum(dim=1).mul_(head_dim**-0.5)


def select_blocks(scores: Tensor, num_complete: Tensor, budget: int) -> Tensor:
    """The `budget` best of each row's first `num_complete` blocks as bool [T, B].

    scores fp32 [T, B]; num_complete int64 [T], not falling. Rows with no more complete blocks than `budget` get all.
    relu makes exact zeros, so equal scores are common. On a CPU torch.topk over just the complete blocks settles them,
    as it does in transformers; on a GPU the first blocks win, as in decode. Either way the choice depends on nothing
    but those scores.
    """
    selected = torch.zeros_like(scores, dtype=torch.bool)
    begin = 0
    for count, rows in groupby(num_complete.tolist()):
        end = begin + len(list(rows))
        if count <= budget:
            selected[begin:end, :count] = True
        else:
            selected[begin:end].scatter_(1, best_blocks(scores[begin:end, :count], budget), True)
        begin = end
    return selected


def best_blocks(scores: Tensor, budget: int) -> Tensor:
    """int64 [T, budget] of scores [T, B]: the best blocks of each row, in any order."""
    return first_of_equals(scores, budget) if scores.is_cuda else scores.topk(budget, dim=-1).indices


def first_of_equals(scores: Tensor, budget: int) -> Tensor:
    """`best_blocks` in order, the lowest first among equals."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[:, :budget]


def selected_tokens(blocks: Tensor, num_complete: Tensor, block_tokens: int, num_tokens: int) -> Tensor:
    """Token mask [T, num_tokens] of selected blocks bool [T, B] and of everything after the last complete block."""
    from_blocks = blocks.repeat_interleave(block_tokens, dim=1)[:, :num_tokens]
    mask = torch.arange(num_tokens, device=blocks.device) >= (num_complete * block_tokens).unsqueeze(1)
    mask[:, : from_blocks.shape[1]] |= from_blocks
    return mask
