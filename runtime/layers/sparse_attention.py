"""Gated softmax attention over paged KV; with an indexer, over the tokens that it selects.

While a query sees no more complete blocks than the indexer's budget, the layer is plain causal attention.
"""

import torch
from torch import Tensor
from torch.nn import functional

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.families.names import NameMap
from runtime.kernels.ops import Ops
from runtime.layers.attention_plan import AttentionPlan, RotaryTable, token_slots
from runtime.layers.dense_weights import DenseWeights
from runtime.spec import IndexerSpec, ModelSpec


class SparseAttention:
    """One layer's weights; `index` is its row among the model's attention layers in the pools."""

    def __init__(self, spec: ModelSpec, weights: DenseWeights, names: NameMap, layer: int, ops: Ops) -> None:
        assert spec.indexer is not None
        self._ops = ops
        self._eps = spec.rms_norm_eps
        self._attention = spec.attention
        self._indexer: IndexerSpec = spec.indexer
        self._scale = spec.attention.head_dim**-0.5
        self.index = spec.attention_layers.index(layer)

        def name(part: str) -> str:
            return names.of_layer(layer, f"self_attn.{part}.weight")

        attention = spec.attention
        # q_proj has query and gate of a head side by side; with all queries first, q and k share norm and rotary.
        per_head = weights.read(name("q_proj")).view(attention.num_heads, 2, attention.head_dim, -1)
        query, gate = (half.flatten(0, 1) for half in per_head.unbind(1))
        others = [weights.read(name(part)) for part in ("k_proj", "v_proj", "indexer.index_qk_proj")]
        self._in_proj = weights.keep(torch.cat([query, others[0], others[1], gate, others[2]]))
        self._out_proj = weights.matrix(name("o_proj"))
        q_scale, k_scale = (weights.read(name(part)).float() + 1.0 for part in ("q_norm", "k_norm"))
        per_head_scales = [q_scale.expand(attention.num_heads, -1), k_scale.expand(attention.num_kv_heads, -1)]
        self._qk_scale = weights.keep(torch.cat(per_head_scales))
        self._index_q_scale = weights.norm_scale(name("indexer.q_layernorm"))
        self._index_k_scale = weights.norm_scale(name("indexer.k_layernorm"))

    def forward(
        self, hidden: Tensor, plans: tuple[AttentionPlan, ...], rotary: RotaryTable, pages: PagePool, states: StatePool
    ) -> Tensor:
        """Mixer output [N, H] for hidden [N, H]; writes keys, values and index keys of the new tokens."""
        attention, indexer = self._attention, self._indexer
        num_rows, num_qk = hidden.shape[0], attention.num_heads + attention.num_kv_heads
        widths = (
            num_qk * attention.head_dim,
            attention.num_kv_heads * attention.head_dim,
            attention.num_heads * attention.head_dim,
            indexer.num_heads * indexer.head_dim,
            indexer.head_dim,
        )
        qk, v, gate, index_q, index_k = functional.linear(hidden, self._in_proj).split(widths, dim=-1)
        qk = self._ops.rms_norm(qk.view(num_rows, num_qk, attention.head_dim), self._qk_scale, self._eps)
        q, k = self._ops.rotate(qk, rotary).split((attention.num_heads, attention.num_kv_heads), dim=1)
        v = v.view(num_rows, attention.num_kv_heads, attention.head_dim)
        index_q = index_q.view(num_rows, indexer.num_heads, indexer.head_dim)
        outputs, begin = [], 0
        for plan in plans:
            span = slice(begin, begin + plan.segment.length)
            pages.keys_flat[self.index].index_copy_(0, plan.write_slots, k[span])
            pages.values_flat[self.index].index_copy_(0, plan.write_slots, v[span])
            self._write_index_keys(index_k[span], plan, pages, states)
            outputs.append(self._attend(q[span], index_q[span], self._slice_rotary(rotary, span), plan, pages))
            begin = span.stop
        mixed = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return functional.linear(mixed.mul_(torch.sigmoid(gate)), self._out_proj)

    def _write_index_keys(self, raw: Tensor, plan: AttentionPlan, pages: PagePool, states: StatePool) -> None:
        """Finish the blocks whose last token is among the new ones; keep the raw keys of the unfinished block."""
        size = self._indexer.block_tokens
        pending = states.pending_index_keys[self.index, plan.segment.state_row]
        num_pending = plan.segment.start % size
        raw = torch.cat((pending[:num_pending], raw))
        num_finished = 0
        if plan.new_block_slots is not None:
            num_new_blocks = plan.new_block_slots.shape[0]
            num_finished = num_new_blocks * size
            means = raw[:num_finished].view(num_new_blocks, 1, size, -1).mean(dim=2)
            keys = self._ops.rotate(self._ops.rms_norm(means, self._index_k_scale, self._eps), plan.block_rotary)
            assert pages.index_keys_flat is not None
            pages.index_keys_flat[self.index].index_copy_(0, plan.new_block_slots, keys.squeeze(1))
        pending[: raw.shape[0] - num_finished].copy_(raw[num_finished:])
        if plan.segment.save_row is not None:
            states.pending_index_keys[self.index, plan.segment.save_row].copy_(pending)

    def _attend(self, q: Tensor, index_q: Tensor, rotary: RotaryTable, plan: AttentionPlan, pages: PagePool) -> Tensor:
        """Attention output [T, Hq*D] of one segment."""
        size, start, end = self._indexer.block_tokens, plan.segment.start, plan.segment.end
        is_single = q.shape[0] == 1
        if plan.num_blocks <= self._indexer.budget_blocks:
            k, v = self._gather_all(pages, plan)
            if is_single:
                return self._ops.attend(q, k, v, self._scale)
            return self._ops.attend_causal(q, k, v, self._scale, start)
        num_complete = torch.div(torch.arange(start + 1, end + 1, device=q.device), size, rounding_mode="floor")
        blocks = self._select(index_q, rotary, num_complete, plan, pages)
        if is_single:
            k, v = self._gather_blocks(pages, plan, blocks[0])
            return self._ops.attend(q, k, v, self._scale)
        mask = self._ops.selected_tokens(blocks, num_complete, size, end)
        k, v = self._gather_all(pages, plan)
        return self._ops.attend_causal(q, k, v, self._scale, start, mask)

    def _select(
        self, index_q: Tensor, rotary: RotaryTable, num_complete: Tensor, plan: AttentionPlan, pages: PagePool
    ) -> Tensor:
        """Selected blocks bool [T, num_blocks]; scores and choice are fp32."""
        assert pages.index_keys is not None
        assert pages.index_keys_flat is not None
        queries = self._ops.rotate(self._ops.rms_norm(index_q, self._index_q_scale, self._eps), rotary)
        if plan.block_slots is None:
            keys = pages.index_keys[self.index].index_select(0, plan.pages).flatten(0, 1)[: plan.num_blocks]
        else:
            keys = pages.index_keys_flat[self.index].index_select(0, plan.block_slots)
        scores = self._ops.block_scores(queries.float(), keys.float())
        return self._ops.select_blocks(scores, num_complete, self._indexer.budget_blocks)

    def _gather_all(self, pages: PagePool, plan: AttentionPlan) -> tuple[Tensor, Tensor]:
        """Keys and values [end, Hkv, D] of every token of the sequence."""
        keys = pages.keys[self.index].index_select(0, plan.pages).flatten(0, 1)
        values = pages.values[self.index].index_select(0, plan.pages).flatten(0, 1)
        return keys[: plan.segment.end], values[: plan.segment.end]

    def _gather_blocks(self, pages: PagePool, plan: AttentionPlan, is_selected: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the selected blocks and of the tokens after the last complete block, in order."""
        size, device = self._indexer.block_tokens, is_selected.device
        first_tokens = is_selected.nonzero() * size
        tail = torch.arange(plan.num_blocks * size, plan.segment.end, device=device)
        tokens = torch.cat(((first_tokens + torch.arange(size, device=device)).flatten(), tail))
        slots = token_slots(plan.pages, tokens)
        keys = pages.keys_flat[self.index].index_select(0, slots)
        return keys, pages.values_flat[self.index].index_select(0, slots)

    @staticmethod
    def _slice_rotary(rotary: RotaryTable, span: slice) -> RotaryTable:
        return rotary[0][span], rotary[1][span]
