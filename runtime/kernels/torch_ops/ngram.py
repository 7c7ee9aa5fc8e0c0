"""Hashed n-gram ids: which table rows a token's context looks up (transformers' Qwen4ExpTextNGramEmbedding)."""

import torch
from torch import Tensor


def ngram_contexts(history: Tensor, token_ids: Tensor, break_id: int) -> Tensor:
    """Each token with the tokens before it: contexts[j, i] is token i-j, or `break_id` past the last break.

    history int64 [n-1]: the tokens before these, `break_id` before the sequence. token_ids int64 [T]. Returns [n, T].
    A token sees its left context up to, not across, the nearest earlier `break_id`; it may be one itself.
    """
    num_before, num_tokens = history.shape[0], token_ids.shape[0]
    extended = torch.cat((history, token_ids))
    contexts = [token_ids]
    is_broken: Tensor | None = None
    for distance in range(1, num_before + 1):
        earlier = extended[num_before - distance : num_before - distance + num_tokens]
        if is_broken is not None:
            earlier = earlier.masked_fill(is_broken, break_id)
        contexts.append(earlier)
        # Once an earlier token is the break, everything before it reads as the break too.
        is_broken = earlier == break_id
    return torch.stack(contexts)


def ngram_ids(contexts: Tensor, multipliers: Tensor, head_sizes: Tensor, head_offsets: Tensor) -> Tensor:
    """Table rows int64 [T, heads]; heads are grouped by order 2 … n, equally many each.

    mix_g = xor of contexts[j] * multipliers[j] for j < g; id = mix_g mod head_size + head_offset.
    contexts int64 [n, T], multipliers int64 [n], head_sizes and head_offsets int64 [heads]. Products stay below 2**63.
    """
    products = contexts * multipliers.unsqueeze(1)
    mixes = [products[0]]
    for product in products[1:]:
        mixes.append(mixes[-1] ^ product)
    heads_per_order = head_sizes.shape[0] // (len(mixes) - 1)
    mixed = torch.stack(mixes[1:], dim=1).repeat_interleave(heads_per_order, dim=1)
    return mixed.remainder_(head_sizes).add_(head_offsets)


def ngram_gate(keys: Tensor, queries: Tensor) -> Tensor:
    """sigmoid(sign(g) * sqrt(max(|g|, 1e-6))), g = <key, query> / sqrt(H). keys, queries [T, S, H]; gives [T, S, 1]."""
    gate = (keys * queries).sum(-1, keepdim=True).mul_(keys.shape[-1] ** -0.5)
    return torch.sigmoid(gate.abs().clamp_min_(1e-6).sqrt_().mul_(gate.sign()))


def context_rows(pool: Tensor, token_ids: Tensor, state_rows: Tensor, break_id: int) -> Tensor:
    """`ngram_contexts` of one new token in each of R sequences.

    pool int64 [rows, n-1], of which `state_rows` int64 [R] (distinct) are the histories and move on; token_ids int64
    [R]. Returns [n, R].
    """
    history = pool.index_select(0, state_rows)
    contexts = [token_ids]
    is_broken = torch.zeros_like(token_ids, dtype=torch.bool)
    for distance in range(1, history.shape[1] + 1):
        earlier = history[:, -distance].masked_fill(is_broken, break_id)
        contexts.append(earlier)
        is_broken = earlier == break_id
    pool.index_copy_(0, state_rows, torch.cat((history[:, 1:], token_ids.unsqueeze(1)), dim=1))
    return torch.stack(contexts)
