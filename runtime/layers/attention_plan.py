"""Where one segment's keys, values and index keys lie in the page pool: computed once per step for all layers.

Token t of a sequence lies in its page t // 64. The index key of a block lies in the page of the block's last token, so
that a page's content depends on nothing after it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.cache.page_pool import index_slots_per_page
from runtime.kernels.ops import Ops
from runtime.layers.step import Segment
from runtime.spec import PAGE_TOKENS, IndexerSpec

RotaryTable = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class AttentionPlan:
    """Flat places in the pool; `num_blocks` counts the blocks complete at the segment's end.

    `write_slots` int64 [T]: where new tokens go. `read_slots` int64 [end]: all tokens of the sequence.
    `block_slots` int64 [num_blocks]: all complete blocks; the last `num_new_blocks` of them complete in this segment,
    and `block_rotary` is the rotary table of their first tokens.
    """

    segment: Segment
    write_slots: Tensor
    read_slots: Tensor
    num_blocks: int
    num_new_blocks: int
    block_slots: Tensor
    block_rotary: RotaryTable | None

    @classmethod
    def build(
        cls, segment: Segment, indexer: IndexerSpec | None, inverse_frequencies: Tensor, ops: Ops
    ) -> "AttentionPlan":
        """Plan for one segment; all sizes follow from its start and length."""
        device = segment.page_table.device
        read_slots = _flat_slots(segment.page_table, torch.arange(segment.end, device=device), PAGE_TOKENS)
        if indexer is None:
            return cls(segment, read_slots[segment.start :], read_slots, 0, 0, read_slots[:0], None)
        size = indexer.block_tokens
        num_blocks = segment.end // size
        num_new_blocks = num_blocks - segment.start // size
        last_tokens = torch.arange(1, num_blocks + 1, device=device) * size - 1
        block_slots = _block_slots(segment.page_table, last_tokens, size)
        first_tokens = last_tokens[num_blocks - num_new_blocks :] - (size - 1)
        rotary = ops.rotary_table(first_tokens, inverse_frequencies) if num_new_blocks else None
        return cls(segment, read_slots[segment.start :], read_slots, num_blocks, num_new_blocks, block_slots, rotary)


def _flat_slots(page_table: Tensor, tokens: Tensor, per_page: int) -> Tensor:
    pages = torch.div(tokens, PAGE_TOKENS, rounding_mode="floor")
    return page_table.index_select(0, pages).mul_(per_page).add_(tokens.remainder(PAGE_TOKENS))


def _block_slots(page_table: Tensor, last_tokens: Tensor, block_tokens: int) -> Tensor:
    pages = torch.div(last_tokens, PAGE_TOKENS, rounding_mode="floor")
    inside = torch.div(last_tokens.remainder(PAGE_TOKENS), block_tokens, rounding_mode="floor")
    return page_table.index_select(0, pages).mul_(index_slots_per_page(block_tokens)).add_(inside)
