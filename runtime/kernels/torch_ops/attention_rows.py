"""Attention of a decode step: one new token in each of R sequences, over pages that page tables name.

Row i is the token at positions[i] of a sequence whose token t lies in page page_table[i, t // 64]; it sees tokens
0 … positions[i]. The index key of a block lies in the page of the block's last token. page_table int64 [R, P] and
positions int64 [R] are all that says how long a sequence is, so that a device needs nothing from the host; entries of a
page table past a sequence's end are ignored. A row's bits don't depend on the others.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.kernels.torch_ops.attention import attend, block_scores, first_of_equals
from runtime.kernels.torch_ops.norms import rms_norm
from runtime.kernels.torch_ops.rotary import rotate
from runtime.spec import PAGE_TOKENS


def write_rows(values: Tensor, pool: Tensor, page_table: Tensor, positions: Tensor) -> None:
    """Store values [R, H, D] as the tokens' keys (or values) in pool [pages, 64, H, D], rounded to its dtype."""
    pool.flatten(0, 1).index_copy_(0, _places(page_table, positions, PAGE_TOKENS, 1), values.to(pool.dtype))


def turn_heads(x: Tensor, scale: Tensor, eps: float, table: tuple[Tensor, Tensor]) -> Tensor:
    """rms_norm of every head, then rotated: x [R, H, D], scale [D] or [H, D], cos and sin [R, 1, half]."""
    return rotate(rms_norm(x, scale, eps), table)


def place_heads(
    qk: Tensor,
    v: Tensor,
    scale: Tensor,
    eps: float,
    table: tuple[Tensor, Tensor],
    keys: Tensor,
    values: Tensor,
    page_table: Tensor,
    positions: Tensor,
) -> Tensor:
    """Queries [R, Hq, D], turned; keys, turned, and values are written to the pools as by `write_rows`.

    qk [R, Hq + Hkv, D], v [R, Hkv, D]; scale [Hq + Hkv, D].
    """
    num_kv_heads = v.shape[1]
    q, k = turn_heads(qk, scale, eps, table).split((qk.shape[1] - num_kv_heads, num_kv_heads), dim=1)
    write_rows(k, keys, page_table, positions)
    write_rows(v, values, page_table, positions)
    return q


@dataclass(frozen=True)
class IndexRows:
    """What the indexer makes its queries and keys of: raw queries fp32 [R, h, d] with scale [d], the rest as of
    `write_index_rows`. Both are rotated by as many dims as the heads beside them."""

    queries: Tensor
    query_scale: Tensor
    raw_keys: Tensor
    pending: Tensor
    state_rows: Tensor
    keys: Tensor
    key_scale: Tensor
    block_table: tuple[Tensor, Tensor]
    block_tokens: int


def place_indexed_heads(
    qk: Tensor,
    v: Tensor,
    scale: Tensor,
    eps: float,
    table: tuple[Tensor, Tensor],
    keys: Tensor,
    values: Tensor,
    page_table: Tensor,
    positions: Tensor,
    index: IndexRows,
) -> tuple[Tensor, Tensor]:
    """`place_heads`, `write_index_rows`, and index queries [R, h, d], turned: what it returns are the queries."""
    q = place_heads(qk, v, scale, eps, table, keys, values, page_table, positions)
    write_index_rows(
        index.raw_keys, index.pending, index.state_rows, index.keys, page_table, positions, index.key_scale, eps,
        index.block_table, index.block_tokens,
    )  # fmt: skip
    return q, turn_heads(index.queries, index.query_scale, eps, table).float()


def write_index_rows(
    raw: Tensor,
    pending: Tensor,
    state_rows: Tensor,
    index_keys: Tensor,
    page_table: Tensor,
    positions: Tensor,
    scale: Tensor,
    eps: float,
    block_table: tuple[Tensor, Tensor],
    block_tokens: int,
) -> None:
    """Finish the blocks of B tokens whose last token is the new one; keep the raw index keys of the others.

    raw fp32 [R, d]; pending fp32 [rows, B-1, d], of which `state_rows` int64 [R] (distinct) hold the raw keys of the
    unfinished blocks; index_keys [pages, slots, d]; scale [d]. `block_table` are cos and sin of positions - (B-1), the
    first token of a block that ends at the new one. A finished key is rotate(rms_norm(mean of its B raw keys)).
    """
    place = positions % block_tokens
    is_last = (place == block_tokens - 1).unsqueeze(1)
    held = pending.index_select(0, state_rows)
    means = torch.cat((held, raw.unsqueeze(1)), dim=1).mean(dim=1, keepdim=True)
    keys = rotate(rms_norm(means, scale, eps), block_table).squeeze(1)
    flat, slots = index_keys.flatten(0, 1), _places(page_table, positions, index_keys.shape[1], block_tokens)
    flat.index_copy_(0, slots, torch.where(is_last, keys.to(flat.dtype), flat.index_select(0, slots)))
    is_own = torch.arange(block_tokens - 1, device=raw.device) == place.unsqueeze(1)
    pending.index_copy_(0, state_rows, torch.where(is_own.unsqueeze(2), raw.unsqueeze(1), held))


def select_rows(
    index_q: Tensor, index_keys: Tensor, page_table: Tensor, positions: Tensor, budget: int, block_tokens: int
) -> Tensor:
    """Numbers of each row's `budget` best complete blocks, int64 [R, budget], ascending, then -1.

    index_q fp32 [R, h, d], normed and rotated; index_keys [pages, slots, d]. A row with no more complete blocks than
    `budget` gets them all. Of blocks with equal scores, of which relu makes many, the first are taken, on every device.
    """
    selected = torch.full((index_q.shape[0], budget), -1, dtype=torch.int64, device=index_q.device)
    for row, position in enumerate(positions.tolist()):
        num_complete = (position + 1) // block_tokens
        if num_complete <= budget:
            blocks = torch.arange(num_complete, device=index_q.device)
        else:
            last_tokens = torch.arange(1, num_complete + 1, device=index_q.device) * block_tokens - 1
            slots = _places(page_table[row].expand(num_complete, -1), last_tokens, index_keys.shape[1], block_tokens)
            keys = index_keys.flatten(0, 1).index_select(0, slots).float()
            blocks = first_of_equals(block_scores(index_q[row : row + 1], keys), budget)[0].sort().values
        selected[row, : len(blocks)] = blocks
    return selected


def attend_rows(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    page_table: Tensor,
    positions: Tensor,
    scale: float,
    blocks: Tensor | None = None,
    block_tokens: int = 0,
    gate: Tensor | None = None,
) -> Tensor:
    """softmax(q k^T * scale) v. q fp32 [R, Hq, D]; keys, values [pages, 64, Hkv, D]. Returns [R, Hq*D].

    With `blocks`, of `select_rows`, a row sees only their tokens and those after its last complete block; with `gate`
    [R, Hq*D] the result is multiplied by its sigmoid.
    """
    outputs = []
    for row, position in enumerate(positions.tolist()):
        tokens = torch.arange(position + 1, device=q.device)
        if blocks is not None:
            chosen = blocks[row][blocks[row] >= 0]
            inside = (chosen.unsqueeze(1) * block_tokens + torch.arange(block_tokens, device=q.device)).flatten()
            tokens = torch.cat((inside, tokens[(position + 1) // block_tokens * block_tokens :]))
        places = _places(page_table[row].expand(len(tokens), -1), tokens, PAGE_TOKENS, 1)
        k, v = (pool.flatten(0, 1).index_select(0, places).float() for pool in (keys, values))
        outputs.append(attend(q[row : row + 1], k, v, scale))
    mixed = torch.cat(outputs)
    return mixed if gate is None else mixed.mul_(torch.sigmoid(gate))


def _places(page_table: Tensor, tokens: Tensor, places_per_page: int, tokens_per_place: int) -> Tensor:
    """Flat places int64 [N] of tokens int64 [N], each by its own row of page_table [N, P]."""
    pages = page_table.gather(1, (tokens // PAGE_TOKENS).unsqueeze(1)).squeeze(1)
    return pages * places_per_page + tokens % PAGE_TOKENS // tokens_per_place
