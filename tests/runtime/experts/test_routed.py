"""Routed experts: right to rounding, and the same bits wherever the experts lie."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from runtime.experts.routed import SlotExperts
from tests.support.random_experts import Experts, make_experts


def route(logits: Tensor, num_choices: int) -> Tensor:
    return logits.topk(num_choices, -1).indices


def reference(experts: Experts, layer: int, hidden: Tensor, expert_ids: Tensor) -> Tensor:
    rows = []
    for row, chosen in zip(hidden.double(), expert_ids.tolist(), strict=True):
        for expert in chosen:
            gate, up, down = (weight.double() for weight in experts.source.weights[layer, expert])
            rows.append(down @ (functional.silu(gate @ row) * (up @ row)))
    return torch.stack(rows).view(*expert_ids.shape, -1)


def assert_close(result: Tensor, expected: Tensor) -> None:
    assert result.dtype == torch.float32
    assert (result.double() - expected).abs().max() <= 2e-6 * expected.abs().max()


SHAPES = [
    ("fp8", 160, 130),
    ("fp8", 36, 7),
    ("nvfp4", 48, 16),
    ("nvfp4", 64, 24),
    ("nvfp4", 36, 20),
    ("bf16", 64, 24),
    ("fp16", 40, 12),
    ("fp32", 36, 7),
]


@pytest.mark.parametrize(("fmt", "hidden_size", "intermediate"), SHAPES)
@pytest.mark.parametrize("num_tokens", [1, 3, 4])
def test_decode_is_right(fmt: str, hidden_size: int, intermediate: int, num_tokens: int) -> None:
    experts = make_experts(fmt, hidden=hidden_size, intermediate=intermediate)
    slots = experts.in_slots(8, max_rows=4)
    hidden, logits = torch.randn(num_tokens, hidden_size), torch.randn(num_tokens, 8)
    slots.begin_step()
    assert_close(
        slots.run(1, hidden, route(logits, 2), logits, is_decode=True),
        reference(experts, 1, hidden, route(logits, 2)),
    )
    slots.check_integrity()


@pytest.mark.parametrize(("fmt", "hidden_size", "intermediate"), SHAPES)
@pytest.mark.parametrize("num_tokens", [1, 7, 65])
def test_prefill_is_right(fmt: str, hidden_size: int, intermediate: int, num_tokens: int) -> None:
    experts = make_experts(fmt, hidden=hidden_size, intermediate=intermediate)
    slots = experts.in_slots(4)
    hidden, logits = torch.randn(num_tokens, hidden_size), torch.randn(num_tokens, 8)
    assert_close(
        slots.run(2, hidden, route(logits, 2), logits, is_decode=False),
        reference(experts, 2, hidden, route(logits, 2)),
    )
    slots.check_integrity()


def play(slots: SlotExperts, seed: int, width: int, num_experts: int = 8, num_choices: int = 2) -> list[Tensor]:
    """Prefill chunks and decode steps of 1 to 4 rows over all layers, mixed."""
    generator = torch.Generator().manual_seed(seed)
    outputs = []
    for step in range(30):
        is_decode = step % 7 != 0
        num_tokens = 1 + step % 4 if is_decode else 11
        if is_decode:
            slots.begin_step()
        for layer in range(3):
            hidden = torch.randn(num_tokens, width, generator=generator)
            logits = torch.randn(num_tokens, num_experts, generator=generator)
            outputs.append(slots.run(layer, hidden, route(logits, num_choices), logits, is_decode))
        slots.check_integrity()
    return outputs


@pytest.mark.parametrize("policy", ["lru", "rule"])
@pytest.mark.parametrize(("fmt", "width", "intermediate"), [("nvfp4", 48, 16), ("fp8", 136, 7), ("fp32", 36, 7)])
def test_slots_never_change_a_bit(policy: str, fmt: str, width: int, intermediate: int) -> None:
    experts = make_experts(fmt, hidden=width, intermediate=intermediate)
    expected = play(experts.all_resident(), 5, width)
    for num_slots, num_ring_slots in ((8, 1), (9, 2), (13, 5), (23, 8)):
        slots = experts.in_slots(num_slots, policy, max_rows=4, num_ring_slots=num_ring_slots)
        results = play(slots, 5, width)
        assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True)), num_slots


@pytest.mark.parametrize(
    ("fmt", "width", "intermediate"), [("nvfp4", 48, 16), ("fp8", 136, 7), ("bf16", 40, 12), ("fp32", 36, 7)]
)
def test_a_decode_row_does_not_depend_on_its_batch(fmt: str, width: int, intermediate: int) -> None:
    experts = make_experts(fmt, hidden=width, intermediate=intermediate)
    hidden, logits = torch.randn(4, width), torch.randn(4, 8)
    chosen = route(logits, 2)
    slots = experts.in_slots(8, max_rows=4)
    together = slots.run(0, hidden, chosen, logits, is_decode=True)
    for row in range(4):
        only = slice(row, row + 1)
        alone = slots.run(0, hidden[only], chosen[only], logits[only], is_decode=True)
        assert torch.equal(alone, together[only])


def test_prefill_evicts_nothing_and_is_not_counted() -> None:
    experts = make_experts()
    slots = experts.in_slots(4)
    logits = torch.randn(1, 8)
    for layer in range(3):
        slots.run(layer, torch.randn(1, 48), route(logits, 2), logits, is_decode=True)
    before = slots.cache.residents()
    assert len(before) == 4
    routed, missed = slots.cache.counters.num_routed, slots.cache.counters.num_missed
    logits = torch.randn(40, 8)
    slots.run(0, torch.randn(40, 48), route(logits, 2), logits, is_decode=False)
    assert slots.cache.residents() == before
    assert (slots.cache.counters.num_routed, slots.cache.counters.num_missed) == (routed, missed)


def test_prefill_fills_empty_slots_with_an_equal_share_per_layer() -> None:
    experts = make_experts()
    slots = experts.in_slots(12)
    logits = torch.randn(40, 8)
    for layer in range(3):
        slots.run(layer, torch.randn(40, 48), route(logits, 2), logits, is_decode=False)
    layers = [layer for layer, _, _ in slots.cache.residents()]
    assert [layers.count(layer) for layer in range(3)] == [4, 4, 4]
    slots.check_integrity()


def test_counters_measure_what_was_copied() -> None:
    experts = make_experts()
    slots = experts.in_slots(24)
    logits = torch.zeros(1, 8)
    chosen = torch.tensor([[1, 5]])
    for _ in range(4):
        slots.begin_step()
        for layer in range(3):
            slots.run(layer, torch.randn(1, 48), chosen, logits, is_decode=True)
    counters = slots.cache.counters
    assert (counters.num_routed, counters.num_missed) == (24, 6)
    assert counters.num_missed_bytes == 6 * experts.layout.record_bytes
    assert counters.hit_rate == 0.75


def test_clear_empties_the_slots_and_answers_stay() -> None:
    experts = make_experts()
    slots = experts.in_slots(4)
    hidden, logits = torch.randn(1, 48), torch.randn(1, 8)
    expected = slots.run(0, hidden, route(logits, 2), logits, is_decode=True)
    slots.clear()
    assert slots.cache.num_used == 0
    slots.check_integrity()
    assert torch.equal(slots.run(0, hidden, route(logits, 2), logits, is_decode=True), expected)


def test_check_integrity_sees_a_wrong_record() -> None:
    experts = make_experts()
    slots = experts.in_slots(4)
    logits = torch.randn(1, 8)
    slots.run(0, torch.randn(1, 48), route(logits, 2), logits, is_decode=True)
    slots.pool[0, 3] ^= 1
    with pytest.raises(AssertionError, match="slot 0"):
        slots.check_integrity()
