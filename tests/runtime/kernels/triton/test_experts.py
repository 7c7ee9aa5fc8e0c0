"""Routed experts equal their twin in every format; bits don't depend on rows, grouping, slots or tuning."""

from functools import partial

import pytest
import torch
from torch import Tensor

from runtime.experts.row_groups import RowGroups
from runtime.kernels.torch_ops.experts import ExpertCompute as Twin
from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops import experts, workspace
from runtime.kernels.triton_ops.arrivals import COUNTER_STRIDE
from runtime.kernels.triton_ops.experts import Tuning, cut_of, expert_rows, expert_rows_by_arrival
from runtime.record import RecordLayout
from tests.support.random_experts import make_experts

SHAPES = [
    ("nvfp4", 208, 48),
    ("nvfp4", 16, 16),
    ("nvfp4", 128, 80),
    ("fp8", 160, 144),
    ("bf16", 48, 16),
    ("fp16", 80, 48),
    ("fp32", 36, 7),
]

COARSE = Tuning(up_rows=64, down_rows=128, num_copiers=3, copied_words=256)
"""Few programs: the interpreter runs one after another."""


def make_pool(
    fmt: str, hidden: int, intermediate: int, num_slots: int, device: torch.device
) -> tuple[RecordLayout, Tensor]:
    """Random records in a pool whose slots are wider than a record, as those of a smaller layer are."""
    experts = make_experts(fmt, 1, num_slots, 1, hidden, intermediate, seed=torch.initial_seed() % 1000)
    layout = experts.layout
    pool = torch.randint(0, 256, (num_slots, layout.record_bytes + 48), dtype=torch.uint8)
    for slot in range(num_slots):
        pool[slot, : layout.record_bytes] = experts.store.record(0, slot)
    return layout, pool.to(device)


def poisoned(*shape: int, device: torch.device) -> Tensor:
    return torch.full(shape, float("nan"), device=device)


def assert_close(result: Tensor, expected: Tensor) -> None:
    assert result.dtype == torch.float32
    assert (result.cpu() - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize(("fmt", "hidden", "intermediate"), SHAPES)
def test_decode_equals_its_twin(fmt: str, hidden: int, intermediate: int, device: torch.device) -> None:
    layout, pool = make_pool(fmt, hidden, intermediate, 4, device)
    rows = torch.randn(2, hidden)
    slots = torch.tensor([[2, 0], [3, 2]])
    output = poisoned(2, 2, hidden, device=device)
    result = expert_rows(layout, pool, slots.to(device), rows.to(device), out=output, tuning=COARSE)
    assert result is output
    assert_close(result, Twin(layout).decode(pool.cpu()[:, : layout.record_bytes], slots, rows))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_rows(dtype: torch.dtype, device: torch.device) -> None:
    layout, pool = make_pool("nvfp4", 80, 32, 3, device)
    rows = torch.randn(1, 80).to(dtype)
    slots = torch.tensor([[1, 2, 0]])
    result = expert_rows(layout, pool, slots.to(device), rows.to(device), tuning=COARSE)
    assert_close(result, Twin(layout).decode(pool.cpu()[:, : layout.record_bytes], slots, rows.float()))


def test_every_code_and_scale_is_exact(device: torch.device) -> None:
    """A one-hot row picks one weight per output; with gate weights of zero nothing but decoding could go wrong."""
    layout = RecordLayout.build(256, 16, "nvfp4")
    record = torch.zeros(layout.record_bytes, dtype=torch.uint8)
    record[: 16 * 128] = 0x77  # gate rows: 6.0
    record[16 * 128 : 32 * 128] = torch.arange(128, dtype=torch.uint8).repeat_interleave(16).flip(0)
    record[layout.gate_up_scale_offset :][: 16 * 16] = 0x38
    record[layout.gate_up_scale_offset + 16 * 16 :][: 16 * 16] = torch.arange(256, dtype=torch.uint8) % 127
    record[layout.down_offset :][: 256 * 8] = torch.arange(256, dtype=torch.uint8).repeat(8)
    record[layout.down_scale_offset :][:256] = torch.arange(256, dtype=torch.uint8).flip(0) % 127 | 0x80
    record[layout.global_scale_offset :][:12] = torch.tensor([1.0, 1.0, 0.25]).view(torch.uint8)
    slots = torch.zeros(1, 1, dtype=torch.int64)
    for column in (7, 8, 100):
        row = torch.zeros(1, 256)
        row[0, column] = 1e-3
        result = expert_rows(layout, record[None].to(device), slots.to(device), row.to(device), tuning=COARSE)
        assert_close(result, Twin(layout).decode(record[None], slots, row))


def test_a_route_without_a_slot_is_left_alone(device: torch.device) -> None:
    layout, pool = make_pool("nvfp4", 48, 32, 4, device)
    rows = torch.randn(2, 48, device=device)
    slots = torch.tensor([[3, -1, 0], [1, 0, 2]], dtype=torch.int32, device=device)
    whole = expert_rows(layout, pool, slots, rows, out=poisoned(2, 3, 48, device=device), tuning=COARSE)
    assert whole[0, 1].isnan().all()
    assert not whole[slots >= 0].isnan().any()


@pytest.mark.parametrize(
    ("fmt", "hidden", "intermediate", "num_missed"),
    [("nvfp4", 208, 48, 0), ("nvfp4", 208, 48, 1), ("nvfp4", 208, 48, 3), ("fp8", 48, 32, 3), ("bf16", 48, 16, 6)],
)
def test_routes_by_arrival_have_the_bits_of_copy_and_rows(
    fmt: str, hidden: int, intermediate: int, num_missed: int, device: torch.device
) -> None:
    """Two rows that share a missed expert. The pool starts as noise, so what is read before it comes is wrong."""
    layout, records = make_pool(fmt, hidden, intermediate, 6, device)
    bank = records[:, : layout.record_bytes].contiguous()
    bank = bank.cpu().pin_memory() if device.type == "cuda" else bank
    rows = torch.randn(2, hidden, device=device)
    # Experts 0 .. missed - 1 are copied to the slots of that number from the end; the others are there.
    experts = torch.tensor([[3, 0, 5], [2, 4, 0]], device=device)
    places = torch.where(experts < num_missed, experts, -1).flatten()
    order = torch.sort(places, stable=True).indices
    slots = torch.tensor([5, 4, 3, 0, 1, 2], device=device)
    arrivals = torch.stack((order, slots[experts.flatten()][order], places[order])).int()
    state = SlotState.empty(1, 6, 6, 6, device)
    state.num_missed.fill_(num_missed)
    state.missed_experts.copy_(torch.arange(6))
    state.missed_slots.copy_(slots)
    pool = torch.randint(0, 256, records.shape, dtype=torch.uint8, device=device)
    pool[slots[num_missed:]] = records[num_missed:]
    output = poisoned(2, 3, hidden, device=device)
    found = expert_rows_by_arrival(layout, state, bank, pool, arrivals, rows, output, COARSE)
    assert torch.equal(pool[slots, : layout.record_bytes], records[:, : layout.record_bytes])
    assert torch.equal(found, expert_rows(layout, records, experts, rows, tuning=COARSE))
    workspace.arrival_counters(device, 1)
    workspace._counters[rows.device].check_integrity()


@pytest.mark.parametrize("fmt", ["nvfp4", "fp8", "bf16"])
def test_bits_depend_on_nothing_but_row_and_record(fmt: str, device: torch.device) -> None:
    layout, pool = make_pool(fmt, 48, 32, 5, device)
    rows = torch.randn(4, 48, device=device)
    slots = torch.tensor([[0], [1], [4], [1]], device=device)
    together = expert_rows(layout, pool, slots, rows, tuning=COARSE)
    for row in range(4):
        alone = expert_rows(layout, pool, slots[row : row + 1], rows[row : row + 1], tuning=COARSE)
        assert torch.equal(alone[0], together[row])
    moved = pool.flip(0).contiguous()
    assert torch.equal(expert_rows(layout, moved, 4 - slots, rows, tuning=COARSE), together)


@pytest.mark.parametrize(
    "tuning",
    [Tuning(1, 32, 32), Tuning(2, 64, 64, up_ahead=1, down_ahead=1), Tuning(4, 256, 256, up_ahead=3, down_ahead=4)],
)
def test_tuning_leaves_the_bits_alone(tuning: Tuning, device: torch.device) -> None:
    layout, pool = make_pool("nvfp4", 384, 32, 2, device)
    rows = torch.randn(1, 384, device=device).bfloat16()
    slots = torch.tensor([[1]], device=device)
    expected = expert_rows(layout, pool, slots, rows, tuning=COARSE)
    assert torch.equal(expert_rows(layout, pool, slots, rows, tuning=tuning), expected)


@pytest.mark.parametrize("words", [4, 256, 2048, 1 << 20])
@pytest.mark.parametrize(
    ("fmt", "hidden", "intermediate"), [("nvfp4", 2560, 640), ("nvfp4", 208, 48), ("bf16", 48, 16)]
)
def test_what_comes_first_is_all_that_gate_and_up_need(fmt: str, hidden: int, intermediate: int, words: int) -> None:
    layout = RecordLayout.build(hidden, intermediate, fmt)
    cut = cut_of(layout, Tuning(copied_words=words), is_by_arrival=True)
    # The last piece, then from the first on.
    end_of_first_part = (cut.up_pieces - 1) * 4 * words
    assert cut.up_pieces == cut.pieces or end_of_first_part >= layout.down_offset
    assert (cut.pieces - 1) * 4 * words <= layout.global_scale_offset
    assert cut.pieces * 4 * words >= layout.record_bytes


def test_more_routes_than_there_are_kept_counters(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, pool = make_pool("nvfp4", 16, 16, 3, device)
    rows, slots = torch.randn(4, 16, device=device), torch.tensor([[0], [1], [2], [1]], device=device)
    expected = expert_rows(layout, pool, slots, rows, tuning=COARSE)
    monkeypatch.setattr(experts, "NUM_COUNTERS", 3 * COUNTER_STRIDE)
    assert torch.equal(expert_rows(layout, pool, slots, rows, tuning=COARSE), expected)


def test_nvfp4_widths_that_are_no_multiple_of_16_are_refused() -> None:
    layout = RecordLayout.build(48, 24, "nvfp4")
    pool = torch.empty(1, layout.record_bytes, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"48 x 24.*multiples of 16"):
        expert_rows(layout, pool, torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 48))


def test_a_chunk_of_rows_equals_its_twin(device: torch.device) -> None:
    """Prefill's way through the kernel: one route per row, many rows, records shared by neighbours."""
    layout, pool = make_pool("nvfp4", 32, 16, 3, device)
    routes = [torch.arange(0, 40, 3), torch.tensor([1]), torch.tensor([2, 4, 5])]
    hidden = torch.randn(20, 32)
    result, expected = torch.zeros(40, 32, device=device), torch.zeros(40, 32)
    kernel = partial(expert_rows, tuning=COARSE)
    compute = RowGroups(layout, kernel, Twin(layout, device))
    compute.groups(pool, [2, 0, 1], [part.to(device) for part in routes], hidden.to(device), result)
    Twin(layout).groups(pool.cpu()[:, : layout.record_bytes], [2, 0, 1], routes, hidden, expected)
    assert_close(result, expected)
