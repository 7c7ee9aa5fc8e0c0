"""Every op of a decode step but the routed experts: calls over rotating inputs, and the bytes that each must move."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from runtime.kernels.torch_ops.attention_rows import IndexRows
from runtime.kernels.torch_ops.delta_rule import DeltaNetConstants
from runtime.kernels.torch_ops.sampler import pack_options
from runtime.kernels.triton_ops import (
    attention,
    conv,
    delta_rule,
    dense,
    heads,
    hyper_connection,
    indexer,
    ngram,
    norms,
    sampler,
)
from runtime.options import SamplingOptions
from runtime.spec import PAGE_TOKENS

EPS = 1e-6


@dataclass(frozen=True)
class OpCase:
    """`make_calls` allocates; each call is one launch of the op. `num_bytes` is what one call must read and write."""

    name: str
    num_bytes: int
    make_calls: Callable[[], list[Callable[[], object]]]


@dataclass(frozen=True)
class OpGeometry:
    """Qwen3.8-Flash-Next, and for plain attention the heads of Qwen3-30B-A3B."""

    hidden: int = 2560
    num_streams: int = 4
    rank: int = 320
    num_experts: int = 512
    shared: int = 640
    vocab_sizes: tuple[int, ...] = (151_936, 248_320)
    num_heads: int = 24
    num_kv_heads: int = 2
    head_dim: int = 256
    rotary_half: int = 32
    index_heads: int = 4
    index_dim: int = 128
    block_tokens: int = 4
    budget: int = 512
    contexts: tuple[int, ...] = (2_048, 32_768, 131_072, 262_144)
    plain_heads: tuple[int, int, int] = (32, 4, 128)
    key_heads: int = 16
    value_heads: int = 48
    delta_dim: int = 128
    cycled_bytes: int = 512 << 20
    """Of rotating inputs, so that no call finds its own in a cache."""
    most_calls: int = 48

    @property
    def residual(self) -> int:
        return self.hidden * self.num_streams

    @property
    def conv_channels(self) -> int:
        return (2 * self.key_heads + self.value_heads) * self.delta_dim

    @property
    def value_width(self) -> int:
        return self.value_heads * self.delta_dim

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Outputs and width of every dense product of a step."""
        query = self.num_heads * self.head_dim
        attention_in = 2 * query + 2 * self.num_kv_heads * self.head_dim + (self.index_heads + 1) * self.index_dim
        return {
            "delta net in": (self.conv_channels + self.value_width + 2 * self.value_heads, self.hidden),
            "mixer out": (self.hidden, query),
            "attention in": (attention_in, self.hidden),
            "router": (self.num_experts, self.hidden),
            "shared in": (2 * self.shared + 1, self.hidden),
            "shared down": (self.hidden, self.shared),
            "mix down": (self.rank + self.num_streams, self.residual),
            "n-gram": (self.residual + self.hidden, self.hidden),
            "head": (self.vocab_sizes[-1], self.hidden),
        }


class Cases:
    """Builds the cases of one number of rows."""

    def __init__(self, geometry: OpGeometry, num_rows: int, device: torch.device) -> None:
        self.geometry, self.num_rows, self.device = geometry, num_rows, device
        self.state_rows = torch.arange(num_rows, device=device)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        # In the type itself: a head of the flagship in fp32 would be twice what is asked for.
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def case(
        self, name: str, num_bytes: int, op: Callable[..., object], make_inputs: Callable[[], tuple[Any, ...]]
    ) -> OpCase:
        """`make_inputs` is called until the inputs outgrow any cache."""

        def make_calls() -> list[Callable[[], object]]:
            num_calls = min(self.geometry.most_calls, max(4, self.geometry.cycled_bytes // num_bytes))
            return [partial(op, *make_inputs()) for _ in range(num_calls)]

        return OpCase(name, num_bytes, make_calls)

    def products(self) -> Iterator[OpCase]:
        for name, (num_outputs, width) in self.geometry.products.items():
            x = self.normal(self.num_rows, width)
            for dtype in (torch.bfloat16, torch.uint8):

                def inputs(dtype=dtype, n=num_outputs, k=width, x=x) -> tuple[Any, ...]:
                    if dtype == torch.bfloat16:
                        return x, self.normal(n, k, dtype=dtype)
                    codes = torch.randint(0, 127, (n, k), dtype=dtype, device=self.device)
                    return x, codes, torch.rand(n, device=self.device)

                num_bytes = num_outputs * width * (torch.empty(0, dtype=dtype).element_size())
                num_bytes += 4 * self.num_rows * (width + num_outputs)
                yield self.case(f"linear {name}, {str(dtype)[6:]}", num_bytes, dense.linear, inputs)

    def rows_alone(self) -> Iterator[OpCase]:
        """Norms and whatever else reads no weights to speak of."""
        g, rows = self.geometry, self.num_rows
        num_heads = g.num_heads + g.num_kv_heads
        per_head, width = (rows, num_heads, g.head_dim), num_heads * g.head_dim
        scale = torch.rand(num_heads, g.head_dim, device=self.device)
        yield self.case("rms_norm", 8 * rows * width, norms.rms_norm, lambda: (self.normal(*per_head), scale, EPS))
        table = (self.normal(rows, 1, g.rotary_half), self.normal(rows, 1, g.rotary_half))
        yield self.case(
            "turn_heads", 8 * rows * width, heads.turn_heads, lambda: (self.normal(*per_head), scale, EPS, table)
        )
        values = (rows * g.value_heads, g.delta_dim)
        norm = torch.rand(g.delta_dim, device=self.device)
        yield self.case(
            "gated_rms_norm", 12 * rows * g.value_width, norms.gated_rms_norm,
            lambda: (self.normal(*values), self.normal(*values), norm, EPS, True),
        )  # fmt: skip
        gate_up = self.normal(rows, 2 * g.shared + 1)
        yield self.case(
            "silu_linear", 2 * g.shared * g.hidden, dense.silu_linear,
            lambda: (gate_up, True, self.normal(g.hidden, g.shared, dtype=torch.bfloat16)),
        )  # fmt: skip

    def streams(self) -> Iterator[OpCase]:
        g, rows = self.geometry, self.num_rows
        residual, output = self.normal(rows, g.residual), self.normal(rows, g.hidden)
        inject = torch.rand(rows, g.num_streams, device=self.device)
        scale = torch.rand(g.num_streams, g.hidden, device=self.device)
        injected = 8 * rows * g.residual

        def weights() -> tuple[Any, ...]:
            down = self.normal(g.rank + g.num_streams, g.residual, dtype=torch.bfloat16)
            return scale, down, self.normal(g.residual, g.rank, dtype=torch.bfloat16), g.num_streams, EPS

        read = 2 * g.residual * (2 * g.rank + g.num_streams) + 4 * rows * g.residual
        yield self.case(
            "inject_output", injected, hyper_connection.inject_output,
            lambda: (self.normal(rows, g.residual), output, inject),
        )  # fmt: skip
        yield self.case("mix_streams", read, hyper_connection.mix_streams, lambda: (residual, *weights()))
        yield self.case(
            "inject_and_mix", read + injected, hyper_connection.inject_and_mix,
            lambda: (residual, output, inject, *weights()),
        )  # fmt: skip

    def states(self) -> Iterator[OpCase]:
        g, rows = self.geometry, self.num_rows
        mixed, heads = self.normal(rows, g.conv_channels), torch.rand(rows, g.value_heads, device=self.device)
        for name, width, length, dilation in (("conv", g.conv_channels, 3, 1), ("n-gram conv", g.residual, 9, 3)):
            taps, x = self.normal(4, width), self.normal(rows, width)

            def inputs(x=x, taps=taps, width=width, length=length, dilation=dilation) -> tuple[Any, ...]:
                return x, self.normal(rows, length, width), self.state_rows, taps, dilation

            yield self.case(f"conv_rows, {name}", 8 * rows * width * (length + 1), conv.conv_rows, inputs)
        shape = (rows, g.value_heads, g.delta_dim, g.delta_dim)
        state_bytes = 8 * rows * g.value_heads * g.delta_dim**2
        gates, norm = (self.normal(rows, g.value_width), heads, heads), torch.rand(g.delta_dim, device=self.device)
        constants = DeltaNetConstants(-heads[0], heads[0], norm, EPS, True, g.key_heads)
        yield self.case(
            "delta_net_rows", state_bytes, delta_rule.delta_net_rows,
            lambda: (mixed, gates, constants, self.normal(*shape), self.state_rows),
        )  # fmt: skip

    def ngrams(self) -> Iterator[OpCase]:
        g, rows = self.geometry, self.num_rows
        pool, tokens = torch.zeros(rows, 2, dtype=torch.int64, device=self.device), self.state_rows
        sizes = torch.arange(20_000_003, 20_000_019, device=self.device)
        contexts = torch.randint(0, 1000, (3, rows), device=self.device)
        yield self.case("context_rows", 40 * rows, ngram.context_rows, lambda: (pool, tokens, self.state_rows, 7))
        yield self.case("ngram_ids", 128 * rows, ngram.ngram_ids, lambda: (contexts, sizes[:3], sizes, sizes))
        keys = self.normal(rows, g.num_streams, g.hidden)
        yield self.case("ngram_gate", 8 * rows * g.residual, ngram.ngram_gate, lambda: (keys, keys))

    def attending(self) -> Iterator[OpCase]:
        g = self.geometry
        for context in g.contexts:
            yield from self._sparse(context)
        for context in g.contexts[:3]:
            yield self._plain(context, *g.plain_heads)

    def sampling(self) -> Iterator[OpCase]:
        every = {
            "greedy": SamplingOptions(),
            "top-k 20, top-p 0.95": SamplingOptions(temperature=1.0, top_k=20, top_p=0.95, presence_penalty=1.5),
            "top-p 0.95": SamplingOptions(temperature=1.0, top_p=0.95),
            "temperature alone": SamplingOptions(temperature=1.0),
        }
        uniforms = torch.rand(self.num_rows, dtype=torch.float64, device=self.device)
        for vocab_size in self.geometry.vocab_sizes:
            seen = torch.zeros(self.num_rows, vocab_size, dtype=torch.uint8, device=self.device)
            for name, options in every.items():
                choices = pack_options([options] * self.num_rows).to(self.device)

                def inputs(choices=choices, seen=seen, vocab_size=vocab_size) -> tuple[Any, ...]:
                    # Steep enough that a nucleus holds some dozens of tokens.
                    return self.normal(self.num_rows, vocab_size) * 4, choices, seen, self.state_rows, uniforms

                num_bytes = 5 * self.num_rows * vocab_size
                yield self.case(f"sample_rows {name}, {vocab_size}", num_bytes, sampler.sample_rows, inputs)
        flat = pack_options([every["top-p 0.95"]] * self.num_rows).to(self.device)
        yield self.case(
            f"sample_rows flat top-p, {vocab_size}", num_bytes, sampler.sample_rows,
            lambda: (self.normal(self.num_rows, vocab_size), flat, seen, self.state_rows, uniforms),
        )  # fmt: skip

    def _pages(self, context: int) -> tuple[Tensor, Tensor, int]:
        """Page table, positions, and pages in all."""
        per_row = -(-context // PAGE_TOKENS)
        num_pages = per_row * self.num_rows
        table = torch.randperm(num_pages, device=self.device).view(self.num_rows, per_row)
        return table, torch.full((self.num_rows,), context - 1, device=self.device), num_pages

    def _sparse(self, context: int) -> Iterator[OpCase]:
        g, rows = self.geometry, self.num_rows
        table, positions, num_pages = self._pages(context)
        kv, slots = (num_pages, PAGE_TOKENS, g.num_kv_heads, g.head_dim), -(-PAGE_TOKENS // g.block_tokens)
        if context == g.contexts[0]:
            pool, values = self.normal(*kv, dtype=torch.bfloat16), self.normal(rows, g.num_kv_heads, g.head_dim)
            row_bytes = 6 * rows * g.num_kv_heads * g.head_dim
            yield self.case("write_rows", row_bytes, attention.write_rows, lambda: (values, pool, table, positions))
            yield self._place(table, positions, num_pages, slots)
        queries = self.normal(rows, g.index_heads, g.index_dim)
        num_blocks = context // g.block_tokens
        yield self.case(
            f"select_rows, {context}", rows * num_blocks * (2 * g.index_dim + 8), indexer.select_rows,
            lambda: (
                queries, self.normal(num_pages, slots, g.index_dim, dtype=torch.bfloat16), table, positions,
                g.budget, g.block_tokens,
            ),
        )  # fmt: skip
        q = self.normal(rows, g.num_heads, g.head_dim)
        blocks = torch.stack(
            [torch.randperm(num_blocks, device=self.device)[: g.budget].sort().values for _ in range(rows)]
        )
        blocks = torch.nn.functional.pad(blocks, (0, g.budget - blocks.shape[1]), value=-1)
        num_seen = min(context, g.budget * g.block_tokens)
        yield self.case(
            f"attend_rows to blocks, {context}", rows * num_seen * 4 * g.num_kv_heads * g.head_dim,
            attention.attend_rows,
            lambda: (
                q, self.normal(*kv, dtype=torch.bfloat16), self.normal(*kv, dtype=torch.bfloat16), table, positions,
                g.head_dim**-0.5, blocks, g.block_tokens,
            ),
        )  # fmt: skip

    def _place(self, table: Tensor, positions: Tensor, num_pages: int, slots: int) -> OpCase:
        g, rows = self.geometry, self.num_rows
        num_qk, kv = g.num_heads + g.num_kv_heads, (num_pages, PAGE_TOKENS, g.num_kv_heads, g.head_dim)
        index_scale, angles = self.normal(g.index_dim), (self.normal(rows, 1, g.rotary_half),) * 2
        index = IndexRows(
            self.normal(rows, g.index_heads, g.index_dim), index_scale, self.normal(rows, g.index_dim),
            self.normal(rows, g.block_tokens - 1, g.index_dim), self.state_rows,
            self.normal(num_pages, slots, g.index_dim, dtype=torch.bfloat16), index_scale, angles, g.block_tokens,
        )  # fmt: skip
        v, scale = self.normal(rows, g.num_kv_heads, g.head_dim), self.normal(num_qk, g.head_dim)
        pools = (self.normal(*kv, dtype=torch.bfloat16), self.normal(*kv, dtype=torch.bfloat16))
        return self.case(
            "place_indexed_heads", 8 * rows * (num_qk * g.head_dim + (g.index_heads + 1) * g.index_dim),
            heads.place_indexed_heads,
            lambda: (self.normal(rows, num_qk, g.head_dim), v, scale, EPS, angles, *pools, table, positions, index),
        )  # fmt: skip

    def _plain(self, context: int, num_heads: int, num_kv_heads: int, head_dim: int) -> OpCase:
        table, positions, num_pages = self._pages(context)
        q, kv = self.normal(self.num_rows, num_heads, head_dim), (num_pages, PAGE_TOKENS, num_kv_heads, head_dim)
        return self.case(
            f"attend_rows to everything, {context}", self.num_rows * context * 4 * num_kv_heads * head_dim,
            attention.attend_rows,
            lambda: (
                q, self.normal(*kv, dtype=torch.float16), self.normal(*kv, dtype=torch.float16), table, positions,
                head_dim**-0.5,
            ),
        )  # fmt: skip


def op_cases(geometry: OpGeometry, num_rows: int, device: torch.device) -> Iterator[OpCase]:
    """All of them, each made when it is asked for."""
    cases = Cases(geometry, num_rows, device)
    for group in (
        cases.products, cases.rows_alone, cases.streams, cases.states, cases.ngrams, cases.attending, cases.sampling,
    ):  # fmt: skip
        yield from group()
