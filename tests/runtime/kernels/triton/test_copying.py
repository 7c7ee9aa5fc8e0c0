"""The copy moves the missed records and nothing else."""

import pytest
import torch

from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops.copying import copy_missed


@pytest.mark.parametrize("record_bytes", [16, 20_000 // 16 * 16, 16_384])
@pytest.mark.parametrize("missed", [[], [(2, 4)], [(0, 3), (1, 0), (4, 5)]])
def test_copy_moves_the_missed_records(missed: list[tuple[int, int]], record_bytes: int, device: torch.device) -> None:
    bank = torch.randint(0, 256, (5, record_bytes), dtype=torch.uint8)
    bank = bank.pin_memory() if device.type == "cuda" else bank
    # A pool whose slots are wider than this layer's records.
    pool = torch.randint(0, 256, (6, record_bytes + 32), dtype=torch.uint8, device=device)
    expected = pool.clone()
    state = SlotState.empty(1, 5, 6, 5, device)
    state.num_missed.fill_(len(missed))
    for place, (expert, slot) in enumerate(missed):
        state.missed_experts[place], state.missed_slots[place] = expert, slot
        expected[slot, :record_bytes] = bank[expert].to(device)
    copy_missed(state, bank, pool[:, :record_bytes])
    assert torch.equal(pool, expected)


def test_odd_record_sizes_are_refused(device: torch.device) -> None:
    state = SlotState.empty(1, 5, 6, 5, device)
    with pytest.raises(ValueError, match="records of 24"):
        copy_missed(state, torch.empty(5, 24, dtype=torch.uint8), torch.empty(6, 32, dtype=torch.uint8))
    with pytest.raises(ValueError, match="pool must start every row"):
        copy_missed(state, torch.empty(5, 16, dtype=torch.uint8), torch.empty(6, 24, dtype=torch.uint8))
