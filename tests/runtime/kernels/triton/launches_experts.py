"""Launches of the routed experts at the flagship's shape and at one that fits no tile."""

import torch

from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops.experts import DEFAULT_TUNING, Tuning, expert_rows, expert_rows_by_arrival
from runtime.record import RecordLayout
from runtime.spec import ExpertFormat


def decode(layout: RecordLayout, dtype: torch.dtype, num_rows: int = 1, tuning: Tuning = DEFAULT_TUNING) -> None:
    pool = torch.empty(2, layout.record_bytes, dtype=torch.uint8)
    slots = torch.zeros(num_rows, 10, dtype=torch.int32)
    expert_rows(layout, pool, slots, torch.empty(num_rows, layout.hidden, dtype=dtype), tuning=tuning)


def decode_by_arrival(layout: RecordLayout) -> None:
    bank, pool = (torch.empty(2, layout.record_bytes, dtype=torch.uint8) for _ in range(2))
    state = SlotState.empty(1, 512, 40, 40, "cpu")
    arrivals = torch.zeros(3, 10, dtype=torch.int32)
    expert_rows_by_arrival(layout, state, bank, pool, arrivals, torch.empty(1, layout.hidden))


def flagship(expert_format: ExpertFormat) -> RecordLayout:
    return RecordLayout.build(2560, 640, expert_format)


def launch_nvfp4() -> None:
    decode(flagship("nvfp4"), torch.float32)


def launch_nvfp4_by_arrival() -> None:
    decode_by_arrival(flagship("nvfp4"))


def launch_nvfp4_of_odd_widths() -> None:
    decode(RecordLayout.build(208, 48, "nvfp4"), torch.bfloat16, 2)


def launch_fp8_by_arrival() -> None:
    decode_by_arrival(flagship("fp8"))


def launch_bf16() -> None:
    decode(flagship("bf16"), torch.bfloat16)
