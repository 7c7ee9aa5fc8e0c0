"""Where one segment's keys, values and index keys lie in the page pool: computed once per step for all layers.

Token t of a sequence lies in its page t // 64. The index key of a block lies in the page of the block's last token, so
that a page's content depends on nothing after it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.cache.page_pool import index_slots_per_page
from runtime.kernels.ops import Ops
from runtime.layers.rotary import Rotary, RotaryTable
from runtime.layers.step import Segment
from runtime.spec import PAGE_TOKENS, IndexerSpec

_PAGE_SHIFT = PAGE_TOKENS.bit_length() - 1


@dataclass(frozen=True)
class AttentionPlan:
    """Flat places in the pool, all int64; `num_blocks` counts the blocks complete at the segment's end.

    `pages` are the segment's pages in order, `write_slots` [T] the places of its new tokens. The blocks that complete
    in this segment go to `new_block_slots`, rotated by the table of their first tokens, `block_rotary`. `block_slots`
    [num_blocks] places all complete blocks; None where they simply lie one after the other in `pages`.
    """

    segment: Segment
    pages: Tensor
    write_slots: Tensor
    num_blocks: int
    new_block_slots: Tensor | None
    block_rotary: RotaryTable | None
    block_slots: Tensor | None

    @classmethod
    def build(cls, segment: Segment, indexer: IndexerSpec | None, rotary: Rotary, ops: Ops) -> "AttentionPlan":
        """Plan for one segment; all sizes follow from its start and length."""
        device = segment.page_table.device
        pages = segment.page_table[: -(-segment.end // PAGE_TOKENS)]
        write_slots = token_slots(pages, torch.arange(segment.start, segment.end, device=device))
        if indexer is None:
            return cls(segment, pages, write_slots, 0, None, None, None)
        size = indexer.block_tokens
        num_blocks, num_old_blocks = segment.end // size, segment.start // size
        block_slots = new_block_slots = block_rotary = None
        if num_blocks > num_old_blocks:
            last_tokens = torch.arange(num_old_blocks + 1, num_blocks + 1, device=device) * size - 1
            new_block_slots = _block_slots(pages, last_tokens, size)
            block_rotary = rotary.table(last_tokens - (size - 1), ops)
        if PAGE_TOKENS % size and num_blocks > indexer.budget_blocks:
            last_tokens = torch.arange(1, num_blocks + 1, device=device) * size - 1
            block_slots = _block_slots(pages, last_tokens, size)
        return cls(segment, pages, write_slots, num_blocks, new_block_slots, block_rotary, block_slots)


def token_slots(pages: Tensor, tokens: Tensor) -> Tensor:
    """Flat places of the tokens at positions `tokens`: page * 64 + position in the page."""
    return pages.index_select(0, tokens >> _PAGE_SHIFT).mul_(PAGE_TOKENS).add_(tokens & (PAGE_TOKENS - 1))


def _block_slots(pages: Tensor, last_tokens: Tensor, block_tokens: int) -> Tensor:
    """Flat places of index keys, by the last token of each block."""
    inside = torch.div(last_tokens & (PAGE_TOKENS - 1), block_tokens, rounding_mode="floor")
    return pages.index_select(0, last_tokens >> _PAGE_SHIFT).mul_(index_slots_per_page(block_tokens)).add_(inside)
