"""Launches of *ensure* and the miss copy at the flagship's shape."""

import torch

from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops import slots
from runtime.kernels.triton_ops.copying import copy_missed

RECORD_BYTES = 2_764_832


def ensure(policy: str, num_rows: int, num_slots: int) -> None:
    state = SlotState.empty(48, 512, num_slots, 40, "cpu")
    expert_ids = torch.zeros(num_rows, 10, dtype=torch.int64)
    slots.ensure(state, policy, 3, expert_ids, torch.zeros(num_rows, 512), RECORD_BYTES)


def launch_lru() -> None:
    ensure("lru", 1, 1650)


def launch_rule() -> None:
    ensure("rule", 1, 1650)


def launch_rule_of_four_rows_and_all_slots() -> None:
    ensure("rule", 4, 24_576)


def launch_copy() -> None:
    state = SlotState.empty(1, 2, 10, 10, "cpu")
    bank = torch.empty(2, RECORD_BYTES, dtype=torch.uint8)
    copy_missed(state, bank, torch.empty(2, RECORD_BYTES, dtype=torch.uint8))
