"""Softmax attention over paged KV, with or without an output gate; with an indexer, over the tokens that it selects.

While a query sees no more complete blocks than the indexer's budget, the layer is plain causal attention.
"""

import torch
from torch import Tensor

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.families.names import NameMap
from runtime.kernels.ops import Ops
from runtime.layers.attention_plan import AttentionPlan, token_slots
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.indexer import Indexer
from runtime.layers.rotary import RotaryTable
from runtime.layers.step import DecodeRows
from runtime.spec import ModelSpec


class Attention:
    """One layer's weights; `index` is its row among the model's attention layers in the pools."""

    def __init__(self, spec: ModelSpec, weights: DenseWeights, names: NameMap, layer: int, ops: Ops) -> None:
        self._ops = ops
        self._eps = spec.rms_norm_eps
        self._attention = attention = spec.attention
        self._scale = attention.head_dim**-0.5
        self._indexer = Indexer(spec, weights, names, layer, ops) if spec.indexer is not None else None
        self.index = spec.attention_layers.index(layer)

        def name(part: str) -> str:
            return names.of_layer(layer, f"self_attn.{part}.weight")

        query, others = weights.read(name("q_proj")), [weights.read(name(part)) for part in ("k_proj", "v_proj")]
        if attention.has_output_gate:
            # q_proj has query and gate of a head side by side; with all queries first, q and k share norm and rotary.
            per_head = query.view(attention.num_heads, 2, attention.head_dim, -1)
            query, gate = (half.flatten(0, 1) for half in per_head.unbind(1))
            others.append(gate)
        exact = [] if self._indexer is None else [weights.read(name("indexer.index_qk_proj"))]
        self._in_proj = weights.projection([query, *others], exact)
        self._widths = self._projected_widths()
        self._out_proj = weights.projection([weights.read(name("o_proj"))])
        q_scale, k_scale = weights.read_norm_scale(name("q_norm")), weights.read_norm_scale(name("k_norm"))
        per_head_scales = [q_scale.expand(attention.num_heads, -1), k_scale.expand(attention.num_kv_heads, -1)]
        self._qk_scale = weights.keep(torch.cat(per_head_scales))

    def forward(
        self, hidden: Tensor, plans: tuple[AttentionPlan, ...], rotary: RotaryTable, pages: PagePool, states: StatePool
    ) -> Tensor:
        """Mixer output [N, H] for hidden [N, H]; writes keys, values and index keys of the new tokens."""
        qk, v, gate, index_q, index_k = self._project(hidden)
        q, k = self._ops.turn_heads(qk, self._qk_scale, self._eps, rotary).split(
            (self._attention.num_heads, self._attention.num_kv_heads), dim=1
        )
        outputs, begin = [], 0
        for plan in plans:
            span = slice(begin, begin + plan.segment.length)
            self._write(k[span], v[span], plan, pages)
            if self._indexer is not None:
                self._indexer.write_keys(index_k[span], plan, pages, states)
            outputs.append(self._attend(q[span], index_q[span], (rotary[0][span], rotary[1][span]), plan, pages))
            begin = span.stop
        return self._output(outputs[0] if len(outputs) == 1 else torch.cat(outputs), gate)

    def decode(
        self,
        hidden: Tensor,
        rows: DecodeRows,
        rotary: RotaryTable,
        block_rotary: RotaryTable | None,
        pages: PagePool,
        states: StatePool,
    ) -> Tensor:
        """The same of one token in each of R sequences; `block_rotary` is that of blocks which end at these tokens."""
        ops, indexer = self._ops, self._indexer
        qk, v, gate, index_q, index_k = self._project(hidden)
        keys, values = pages.keys[self.index], pages.values[self.index]
        blocks, block_tokens = None, 0
        new = qk, v, self._qk_scale, self._eps, rotary, keys, values, rows.page_table, rows.positions
        if indexer is None or block_rotary is None:
            q = ops.place_heads(*new)
        else:
            index_rows = indexer.new_rows(index_q, index_k, rows, block_rotary, pages, states)
            q, index_q = ops.place_indexed_heads(*new, index_rows)
            blocks, block_tokens = indexer.select_rows(index_q, rows, pages), indexer.block_tokens
        mixed = ops.attend_rows(
            q, keys, values, rows.page_table, rows.positions, self._scale, blocks, block_tokens,
            gate if self._attention.has_output_gate else None,
        )  # fmt: skip
        output: Tensor = ops.linear(mixed, *self._out_proj)
        return output

    def _project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Queries and keys [N, Hq + Hkv, D], v [N, Hkv, D], gate [N, Hq*D], index query and key: all raw."""
        attention, num_rows = self._attention, hidden.shape[0]
        num_qk = attention.num_heads + attention.num_kv_heads
        projected = self._ops.linear(hidden, *self._in_proj)
        qk, v, gate, index_q, index_k = projected.split(self._widths, dim=-1)
        heads = qk.view(num_rows, num_qk, attention.head_dim)
        return heads, v.view(num_rows, attention.num_kv_heads, attention.head_dim), gate, index_q, index_k

    def _output(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """Mixer output [N, H] of attended values [N, Hq*D]."""
        if self._attention.has_output_gate:
            mixed.mul_(torch.sigmoid(gate))
        output: Tensor = self._ops.linear(mixed, *self._out_proj)
        return output

    def _projected_widths(self) -> tuple[int, ...]:
        """Of queries and keys, values, output gate, index queries, index key; 0 for what the model does not have."""
        attention = self._attention
        query_width = attention.num_heads * attention.head_dim
        kv_width = attention.num_kv_heads * attention.head_dim
        gate_width = query_width if attention.has_output_gate else 0
        index_widths = self._indexer.projected_widths if self._indexer is not None else (0, 0)
        return (query_width + kv_width, kv_width, gate_width, *index_widths)

    def _attend(self, q: Tensor, index_q: Tensor, rotary: RotaryTable, plan: AttentionPlan, pages: PagePool) -> Tensor:
        """Attention output [T, Hq*D] of one segment."""
        indexer, start, end = self._indexer, plan.segment.start, plan.segment.end
        is_single = q.shape[0] == 1
        mask: Tensor | None = None
        if indexer is not None and not indexer.sees_everything(plan):
            blocks, num_complete = indexer.select(index_q, rotary, plan, pages)
            if is_single:
                k, v = self._gather(pages, token_slots(plan.pages, indexer.tokens(blocks[0], plan)))
                return self._ops.attend(q, k, v, self._scale)
            mask = indexer.token_mask(blocks, num_complete, end)
        k, v = self._gather_all(pages, plan)
        if is_single:
            return self._ops.attend(q, k, v, self._scale)
        return self._ops.attend_causal(q, k, v, self._scale, start, mask)

    def _write(self, k: Tensor, v: Tensor, plan: AttentionPlan, pages: PagePool) -> None:
        """Keep keys and values [T, Hkv, D] of a segment's new tokens."""
        if not pages.is_kv_on_host:
            pages.write(self.index, plan.write_slots, k, v)
            return
        segment = plan.segment
        positions = torch.arange(segment.start, segment.end, device=k.device)
        table = segment.page_table.expand(len(positions), -1)
        self._ops.write_rows(k, pages.keys[self.index], table, positions)
        self._ops.write_rows(v, pages.values[self.index], table, positions)

    def _gather_all(self, pages: PagePool, plan: AttentionPlan) -> tuple[Tensor, Tensor]:
        """Keys and values [end, Hkv, D] of every token of the sequence."""
        if pages.is_kv_on_host:
            tokens = torch.arange(plan.segment.end, device=plan.pages.device)
            return self._gather(pages, token_slots(plan.pages, tokens))
        keys = pages.keys[self.index].index_select(0, plan.pages).flatten(0, 1)
        values = pages.values[self.index].index_select(0, plan.pages).flatten(0, 1)
        return keys[: plan.segment.end].float(), values[: plan.segment.end].float()

    def _gather(self, pages: PagePool, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [len(slots), Hkv, D] at flat places of the pool."""
        flat = pages.keys_flat[self.index], pages.values_flat[self.index]
        if pages.is_kv_on_host:
            keys, values = (self._gather_from_host(pool, slots) for pool in flat)
        else:
            keys, values = (pool.index_select(0, slots) for pool in flat)
        return keys.float(), values.float()

    def _gather_from_host(self, pool: Tensor, slots: Tensor) -> Tensor:
        """The device fetches the rows itself: the host would have to wait for what wrote them."""
        rows: Tensor = self._ops.gather_rows(pool.flatten(1).view(torch.uint8), slots)
        return rows.view(pool.dtype).view(-1, *pool.shape[1:])
