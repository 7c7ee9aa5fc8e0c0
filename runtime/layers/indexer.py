"""The indexer of sparse attention: one key per block of tokens, and the blocks that a query's scores select."""

import torch
from torch import Tensor

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.families.names import NameMap
from runtime.kernels.ops import Ops
from runtime.kernels.torch_ops.attention_rows import IndexRows
from runtime.layers.attention_plan import AttentionPlan
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.rotary import RotaryTable
from runtime.layers.step import DecodeRows
from runtime.spec import IndexerSpec, ModelSpec


class Indexer:
    """One layer's index norms; `index` is the layer's row among the model's attention layers in the pools.

    Raw index queries and keys come out of the attention's input projection, `projected_widths` wide.
    """

    def __init__(self, spec: ModelSpec, weights: DenseWeights, names: NameMap, layer: int, ops: Ops) -> None:
        assert spec.indexer is not None
        self._ops = ops
        self._eps = spec.rms_norm_eps
        self._spec: IndexerSpec = spec.indexer
        self.index = spec.attention_layers.index(layer)
        self.block_tokens = spec.indexer.block_tokens
        self.projected_widths = (self._spec.num_heads * self._spec.head_dim, self._spec.head_dim)
        self._q_scale = weights.norm_scale(names.of_layer(layer, "self_attn.indexer.q_layernorm.weight"))
        self._k_scale = weights.norm_scale(names.of_layer(layer, "self_attn.indexer.k_layernorm.weight"))

    def write_keys(self, raw: Tensor, plan: AttentionPlan, pages: PagePool, states: StatePool) -> None:
        """Finish the blocks whose last token is among the new ones; keep the raw keys of the unfinished block."""
        size = self._spec.block_tokens
        pending = states.pending_index_keys[self.index, plan.segment.state_row]
        num_pending = plan.segment.start % size
        raw = torch.cat((pending[:num_pending], raw))
        num_finished = 0
        if plan.new_block_slots is not None:
            num_new_blocks = plan.new_block_slots.shape[0]
            num_finished = num_new_blocks * size
            means = raw[:num_finished].view(num_new_blocks, 1, size, -1).mean(dim=2)
            keys = self._ops.turn_heads(means, self._k_scale, self._eps, plan.block_rotary)
            pages.write_index_keys(self.index, plan.new_block_slots, keys.squeeze(1))
        pending[: raw.shape[0] - num_finished].copy_(raw[num_finished:])
        if plan.segment.save_row is not None:
            states.pending_index_keys[self.index, plan.segment.save_row].copy_(pending)

    def new_rows(
        self, raw_q: Tensor, raw_k: Tensor, rows: DecodeRows, block_rotary: RotaryTable, pages: PagePool,
        states: StatePool,
    ) -> IndexRows:  # fmt: skip
        """What makes index queries and keys of one token in each of R sequences."""
        assert pages.index_keys is not None
        pending, keys = states.pending_index_keys[self.index], pages.index_keys[self.index]
        return IndexRows(
            self._heads(raw_q), self._q_scale, raw_k, pending, rows.state_rows, keys, self._k_scale, block_rotary,
            self.block_tokens,
        )  # fmt: skip

    def select_rows(self, queries: Tensor, rows: DecodeRows, pages: PagePool) -> Tensor | None:
        """Selected blocks int64 [R, budget] of `ops.select_rows`; None where no sequence can outgrow the budget."""
        if rows.most_tokens // self.block_tokens <= self._spec.budget_blocks:
            return None
        assert pages.index_keys is not None
        blocks: Tensor = self._ops.select_rows(
            queries,
            pages.index_keys[self.index],
            rows.page_table,
            rows.positions,
            self._spec.budget_blocks,
            self.block_tokens,
        )
        return blocks

    def _heads(self, raw: Tensor) -> Tensor:
        return raw.view(raw.shape[0], self._spec.num_heads, self._spec.head_dim)

    def _queries(self, raw: Tensor, rotary: RotaryTable) -> Tensor:
        """Normed and rotated, fp32 [N, heads, dim]."""
        queries: Tensor = self._ops.turn_heads(self._heads(raw), self._q_scale, self._eps, rotary)
        return queries.float()

    def sees_everything(self, plan: AttentionPlan) -> bool:
        """Whether the segment's queries see no more complete blocks than the budget."""
        return plan.num_blocks <= self._spec.budget_blocks

    def select(self, raw: Tensor, rotary: RotaryTable, plan: AttentionPlan, pages: PagePool) -> tuple[Tensor, Tensor]:
        """Selected blocks bool [T, num_blocks] for raw queries [T, width], and each query's number of complete blocks.

        Scores and choice are fp32.
        """
        segment = plan.segment
        last = torch.arange(segment.start + 1, segment.end + 1, device=raw.device)
        num_complete = torch.div(last, self._spec.block_tokens, rounding_mode="floor")
        scores = self._ops.block_scores(self._queries(raw, rotary), self._keys(plan, pages).float())
        return self._ops.select_blocks(scores, num_complete, self._spec.budget_blocks), num_complete

    def token_mask(self, blocks: Tensor, num_complete: Tensor, num_tokens: int) -> Tensor:
        """What each query sees as bool [T, num_tokens]: its blocks, and all after the last complete one."""
        mask: Tensor = self._ops.selected_tokens(blocks, num_complete, self._spec.block_tokens, num_tokens)
        return mask

    def tokens(self, is_selected: Tensor, plan: AttentionPlan) -> Tensor:
        """Positions int64, in order, of what the segment's one query sees; is_selected bool [num_blocks]."""
        size, device = self._spec.block_tokens, is_selected.device
        first_tokens = is_selected.nonzero() * size
        tail = torch.arange(plan.num_blocks * size, plan.segment.end, device=device)
        return torch.cat(((first_tokens + torch.arange(size, device=device)).flatten(), tail))

    def _keys(self, plan: AttentionPlan, pages: PagePool) -> Tensor:
        assert pages.index_keys is not None
        assert pages.index_keys_flat is not None
        if plan.block_slots is None:
            return pages.index_keys[self.index].index_select(0, plan.pages).flatten(0, 1)[: plan.num_blocks]
        return pages.index_keys_flat[self.index].index_select(0, plan.block_slots)
