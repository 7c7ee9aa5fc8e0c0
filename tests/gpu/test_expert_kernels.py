"""The kernels of the routed experts at full size: right, and the same bits however the work is cut and grouped."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from runtime.kernels.torch_ops import fp8, nvfp4
from runtime.kernels.triton_ops import dense, launch_order, router, slots, workspace
from runtime.kernels.triton_ops.copying import copy_missed
from runtime.kernels.triton_ops.experts import TUNINGS, expert_rows, expert_rows_by_arrival
from runtime.record import RecordLayout
from tests.support.slot_traces import SideBySide, SlotShape

HIDDEN, INTERMEDIATE, NUM_CHOICES = 2560, 640, 10
WIDTHS = [(HIDDEN, INTERMEDIATE), (2048, 768), (2048, 512), (1008, 176)]
"""Of the flagship, of Qwen3-30B-A3B and Qwen3-Next, and of none: multiples of 16 alone."""


@dataclass(frozen=True)
class Slots:
    """Random records, and their weights in fp64."""

    layout: RecordLayout
    pool: Tensor
    gate_up: list[Tensor]
    down: list[Tensor]

    def expected(self, slot_ids: Tensor, hidden: Tensor) -> Tensor:
        """fp64 [R, k, hidden]."""
        rows = []
        for row, chosen in zip(hidden.double(), slot_ids.tolist(), strict=True):
            for slot in chosen:
                gate, up = (self.gate_up[slot] @ row).chunk(2)
                rows.append(self.down[slot] @ (functional.silu(gate) * up))
        return torch.stack(rows).view(*slot_ids.shape, -1)


def random_slots(fmt: str, hidden: int, intermediate: int, num_slots: int, device: torch.device) -> Slots:
    """Packed on the device, since random records of this size take a CPU minutes."""
    layout = RecordLayout.build(hidden, intermediate, fmt)
    pool = torch.randint(0, 256, (num_slots, layout.record_bytes), dtype=torch.uint8, device=device)
    gate_up, down = [], []
    for slot in range(num_slots):
        first = (pool[slot], layout.gate_up_offset, layout.gate_up_scale_offset, 2 * intermediate, hidden, fmt)
        second = (pool[slot], layout.down_offset, layout.down_scale_offset, hidden, intermediate, fmt)
        matrices = [_put(*first), _put(*second)]
        if fmt == "nvfp4":
            scales = (torch.rand(3, device=device) + 0.5) / 100
            pool[slot, layout.global_scale_offset :][:12] = scales.view(torch.uint8)
            gate, up = matrices[0].chunk(2)
            matrices = [
                torch.cat([gate * scales[0].double(), up * scales[1].double()]),
                matrices[1] * scales[2].double(),
            ]
        gate_up.append(matrices[0])
        down.append(matrices[1])
    return Slots(layout, pool, gate_up, down)


def _put(record: Tensor, at: int, scales_at: int, num_rows: int, width: int, fmt: str) -> Tensor:
    """A random matrix, in place; returns its fp64 values without the global scale."""
    device = record.device
    if fmt == "nvfp4":
        codes = record[at : at + num_rows * width // 2].view(num_rows, width // 2)
        scales = torch.randint(0, 0x7F, (num_rows, width // 16), dtype=torch.uint8, device=device)
        record[scales_at : scales_at + scales.numel()] = scales.flatten()
        return nvfp4.unscaled_values(codes.cpu(), scales.cpu()).double().to(device)
    weight = torch.randn(num_rows, width, device=device) / width**0.5
    if fmt == "fp8":
        values, multipliers = fp8.quantise(weight)
        record[at : at + values.numel()] = values.flatten()
        record[scales_at : scales_at + 4 * multipliers.numel()] = multipliers.flatten().view(torch.uint8)
        return fp8.dequantise(values.cpu(), multipliers.cpu()).double().to(device)
    stored = weight.to({"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[fmt])
    record[at : at + stored.nbytes] = stored.flatten().view(torch.uint8)
    return stored.double()


def poisoned(*shape: int, device: torch.device) -> Tensor:
    return torch.full(shape, float("nan"), device=device)


def distance(result: Tensor, expected: Tensor) -> float:
    return float((result.double() - expected).norm() / expected.norm())


@pytest.fixture(scope="module")
def flagship(device: torch.device) -> Slots:
    return random_slots("nvfp4", HIDDEN, INTERMEDIATE, 24, device)


CASES = [*(("nvfp4", widths) for widths in WIDTHS), *((fmt, WIDTHS[-1]) for fmt in ("fp8", "bf16", "fp16", "fp32"))]


@pytest.mark.parametrize(("fmt", "widths"), CASES, ids=str)
def test_experts_are_right(fmt: str, widths: tuple[int, int], device: torch.device) -> None:
    experts = random_slots(fmt, *widths, 6, device)
    for num_rows in (1, 2, 3, 4):
        hidden = torch.randn(num_rows, widths[0], device=device)
        slot_ids = torch.randint(0, 6, (num_rows, 5), dtype=torch.int32, device=device)
        out = poisoned(num_rows, 5, widths[0], device=device)
        expert_rows(experts.layout, experts.pool, slot_ids, hidden, out=out)
        assert distance(out, experts.expected(slot_ids, hidden)) < 1e-5


def test_every_cut_gives_the_same_bits(flagship: Slots, device: torch.device) -> None:
    hidden = torch.randn(2, HIDDEN, device=device)
    slot_ids = torch.randint(0, 24, (2, NUM_CHOICES), dtype=torch.int32, device=device)
    expected = expert_rows(flagship.layout, flagship.pool, slot_ids, hidden)
    for tuning in TUNINGS[1::3]:
        result = expert_rows(flagship.layout, flagship.pool, slot_ids, hidden, tuning=tuning)
        assert torch.equal(result, expected), tuning


def test_rows_and_slots_leave_the_bits_alone(flagship: Slots, device: torch.device) -> None:
    layout, pool = flagship.layout, flagship.pool
    hidden = torch.randn(4, HIDDEN, device=device)
    slot_ids = torch.randint(0, 24, (4, NUM_CHOICES), dtype=torch.int32, device=device)
    expected = expert_rows(layout, pool, slot_ids, hidden)
    for row in range(4):
        for last in range(row + 1, 5):
            part = slice(row, last)
            assert torch.equal(expert_rows(layout, pool, slot_ids[part], hidden[part]), expected[part])
    # Elsewhere, and in slots that are wider than a record.
    moved = torch.zeros(40, layout.record_bytes + 64, dtype=torch.uint8, device=device)
    moved[39 - torch.arange(24), : layout.record_bytes] = pool
    assert torch.equal(expert_rows(layout, moved, 39 - slot_ids, hidden), expected)


@pytest.mark.parametrize("num_experts", [5, 64, 512])
def test_routes_are_those_of_a_stable_sort(num_experts: int, device: torch.device) -> None:
    for num_rows in (1, 2, 3, 4):
        num_routed = min(num_experts, NUM_CHOICES)
        # A grid, so that equal logits occur.
        logits = (torch.randn(num_rows, num_experts, device=device) * 16).round() / 16
        ids, weights = router.route(logits, num_routed, True)
        expected = torch.sort(logits, descending=True, stable=True)
        assert torch.equal(ids, expected.indices[:, :num_routed])
        torch.testing.assert_close(weights, torch.softmax(expected.values[:, :num_routed], -1), rtol=1e-5, atol=1e-7)
        rows, shared = (
            torch.randn(num_rows, num_routed, HIDDEN, device=device),
            torch.randn(num_rows, HIDDEN, device=device),
        )
        combined = (rows.double() * weights.double().unsqueeze(-1)).sum(1) + shared.double()
        assert distance(router.combine_routes(rows, weights, shared), combined) < 1e-6


@pytest.mark.parametrize("is_registered", [False, True])
def test_copy_from_pinned_memory(is_registered: bool, device: torch.device) -> None:
    layout = RecordLayout.build(HIDDEN, INTERMEDIATE, "nvfp4")
    bank = torch.randint(0, 256, (48, layout.record_bytes), dtype=torch.uint8)
    if is_registered:
        assert torch.cuda.cudart().cudaHostRegister(bank.data_ptr(), bank.nbytes, 0) == 0
    else:
        bank = bank.pin_memory()
    try:
        for num_missed in (0, 1, 4, 10, 40):
            pool = torch.randint(0, 256, (64, layout.record_bytes), dtype=torch.uint8, device=device)
            state = slots.SlotState.empty(1, 48, 64, 40, device)
            chosen, places = torch.randperm(48)[:num_missed], torch.randperm(64)[:num_missed]
            state.missed_experts[:num_missed] = chosen.int().to(device)
            state.missed_slots[:num_missed] = places.int().to(device)
            state.num_missed.fill_(num_missed)
            expected = pool.clone()
            expected[places.to(device)] = bank[chosen].to(device)
            copy_missed(state, bank, pool)
            assert torch.equal(pool, expected)
    finally:
        torch.cuda.synchronize()
        if is_registered:
            torch.cuda.cudart().cudaHostUnregister(bank.data_ptr())


@pytest.mark.parametrize("fmt", ["nvfp4", "bf16"])
def test_routes_by_arrival_have_the_bits_of_copy_and_rows(fmt: str, device: torch.device) -> None:
    """Random routing over few slots, many times, after pauses of no length; the slots begin as noise."""
    experts = random_slots(fmt, HIDDEN, INTERMEDIATE, 48, device)
    layout, bank = experts.layout, experts.pool.cpu().pin_memory()
    states = [slots.SlotState.empty(1, 48, 40, 40, device) for _ in range(2)]
    pools = [torch.randint(0, 256, (40, layout.record_bytes), dtype=torch.uint8, device=device) for _ in range(2)]
    differ = torch.zeros(2, dtype=torch.int64, device=device)
    for step in range(120 if fmt == "nvfp4" else 30):
        num_rows = 1 + step % 4
        logits, hidden = torch.randn(num_rows, 48, device=device), torch.randn(num_rows, HIDDEN, device=device)
        ids, _ = router.route(logits, NUM_CHOICES, True)
        slot_ids, _ = slots.ensure(states[0], "lru", 0, ids, logits, layout.record_bytes)
        copy_missed(states[0], bank, pools[0])
        expected = expert_rows(layout, pools[0], slot_ids, hidden)
        _, arrivals = slots.ensure(states[1], "lru", 0, ids, logits, layout.record_bytes)
        out = poisoned(*expected.shape, device=device)
        tuning = TUNINGS[step % len(TUNINGS)] if step % 3 == 0 else TUNINGS[0]
        expert_rows_by_arrival(layout, states[1], bank, pools[1], arrivals, hidden, out, tuning)
        differ += torch.stack(((out != expected).sum(), (pools[0][slot_ids] != pools[1][slot_ids]).sum()))
    assert states[0].counters.tolist() == states[1].counters.tolist()
    assert int(states[0].counters[1]) > 100
    assert differ.tolist() == [0, 0]
    for counters in workspace._counters.values():
        counters.check_integrity()


def test_a_graph_of_a_layer_replays_to_the_eager_bits(flagship: Slots, device: torch.device) -> None:
    layout = flagship.layout
    bank = flagship.pool.cpu().pin_memory()
    logits, hidden = torch.randn(2, 24, device=device), torch.randn(2, HIDDEN, device=device)

    def layer(state: slots.SlotState, pool: Tensor) -> Tensor:
        ids, weights = router.route(logits, 5, True)
        _, arrivals = slots.ensure(state, "rule", 0, ids, logits, layout.record_bytes)
        rows = expert_rows_by_arrival(layout, state, bank, pool, arrivals, hidden)
        return router.combine_routes(rows, weights)

    def fresh() -> tuple[slots.SlotState, Tensor]:
        return slots.SlotState.empty(1, 24, 12, 10, device), torch.zeros(
            12, layout.record_bytes, dtype=torch.uint8, device=device
        )

    eager, captured = fresh(), fresh()
    layer(*fresh())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = layer(*captured)
    for _ in range(20):
        logits.copy_(torch.randn(2, 24, device=device))
        hidden.copy_(torch.randn(2, HIDDEN, device=device))
        expected = layer(*eager)
        graph.replay()
        assert torch.equal(output, expected)
        assert torch.equal(captured[1], eager[1])


@pytest.mark.parametrize("policy", ["lru", "rule"])
def test_ensure_takes_the_victims_of_the_slot_cache(policy: str, device: torch.device) -> None:
    """20,000 calls over a few layers."""
    SideBySide(slots, policy, SlotShape(4, 512, 10, 230), device, seed=torch.initial_seed() % 2**32).run(5_000)


@pytest.mark.parametrize("policy", ["lru", "rule"])
@pytest.mark.parametrize("shape", [SlotShape(48, 512, 10, 1650, 1), SlotShape(48, 512, 10, 20_000, 1)], ids=str)
def test_ensure_of_the_flagship(policy: str, shape: SlotShape, device: torch.device) -> None:
    SideBySide(slots, policy, shape, device, seed=1).run(20)


@pytest.mark.parametrize("policy", ["lru", "rule"])
@pytest.mark.parametrize("num_rows", [1, 4])
def test_ensure_behind_its_router_begins_early(
    policy: str, num_rows: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers behind each other with nothing but their router between, as a graph, and one launch after the other."""
    gates = [torch.randn(512, HIDDEN, device=device).bfloat16() for _ in range(12)]
    hidden = torch.randn(num_rows, HIDDEN, device=device)
    states = [slots.SlotState.empty(len(gates), 512, 400, 40, device) for _ in range(2)]

    def step(state: slots.SlotState) -> list[Tensor]:
        slots.begin_step(state)
        arrivals = []
        for layer, gate in enumerate(gates):
            logits = dense.linear(hidden, gate)
            ids, _ = router.route(logits, NUM_CHOICES, True)
            arrivals.append(slots.ensure(state, policy, layer, ids, logits, 1)[1])
        return arrivals

    step(states[0])
    states[0].reset()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step(states[0])
    states[0].reset()
    monkeypatch.setattr(launch_order, "LAUNCHES_EARLY", False)
    for _ in range(100):
        hidden.add_(torch.randn_like(hidden) / 2)
        expected = step(states[1])
        graph.replay()
        assert all(torch.equal(*pair) for pair in zip(results, expected, strict=True))
    assert torch.equal(states[0].owner, states[1].owner)
    assert torch.equal(states[0].counters, states[1].counters)
