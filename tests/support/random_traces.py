"""Random routing as an engine makes it, told to a slot cache and a recorder alike."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from runtime.experts.slot_cache import EMPTY, SlotCache
from runtime.experts.trace import RoutingTrace, TraceFacts, read_trace
from runtime.experts.trace_writer import TraceWriter


@st.composite
def shapes(draw: st.DrawFn) -> tuple[TraceFacts, int, int, int]:
    """(facts, most rows, number of steps, seed)"""
    num_experts = draw(st.integers(2, 12))
    facts = TraceFacts("random", draw(st.integers(1, 5)), num_experts, draw(st.integers(1, min(4, num_experts))))
    return facts, draw(st.integers(1, 4)), draw(st.integers(1, 50)), draw(st.integers(0, 2**32 - 1))


def drive(
    facts: TraceFacts, max_rows: int, num_steps: int, seed: int, *listeners: Any, has_prefill: bool = True
) -> None:
    """Decode steps with a prefill now and then; rarely every slot is emptied. Logits lie on a grid of 1/16."""
    rng = np.random.default_rng(seed)
    bias = rng.normal(size=(facts.num_layers, facts.num_experts)) * 2
    for _ in range(num_steps):
        for layer in range(facts.num_layers if has_prefill and rng.random() < 0.15 else 0):
            experts = rng.permutation(facts.num_experts)[: rng.integers(1, facts.num_experts + 1)].tolist()
            for listener in listeners:
                listener.prefill(layer, experts)
        for listener in listeners:
            listener.begin_step()
        num_rows = int(rng.integers(1, max_rows + 1))
        for layer in range(facts.num_layers):
            noise = rng.normal(size=(num_rows, facts.num_experts))
            logits = (np.round((bias[layer] + noise) * 16) / 16).astype(np.float32)
            expert_ids = np.argsort(-logits, axis=1, kind="stable")[:, : facts.num_choices].astype(np.int64)
            for listener in listeners:
                listener.decode(layer, expert_ids, logits)
        if has_prefill and rng.random() < 0.05:
            for listener in listeners:
                listener.clear()


class CacheListener:
    """A slot cache that is run as an engine runs it, over the router's own logits."""

    def __init__(self, cache: SlotCache) -> None:
        self.cache = cache

    def begin_step(self) -> None:
        self.cache.begin_step()

    def decode(self, layer: int, expert_ids: np.ndarray, router_logits: np.ndarray) -> None:
        self.cache.ensure(layer, expert_ids, router_logits)

    def prefill(self, layer: int, experts: list[int]) -> None:
        self.cache.place(layer, [expert for expert in experts if self.cache.slots_of(layer, np.array(expert)) == EMPTY])

    def clear(self) -> None:
        self.cache.clear()


def record(path: Path, facts: TraceFacts, max_rows: int, num_steps: int, seed: int, **more: Any) -> RoutingTrace:
    """A random trace, written and read back."""
    writer = TraceWriter(path, facts)
    drive(facts, max_rows, num_steps, seed, writer, **more)
    writer.save()
    return read_trace(path)
