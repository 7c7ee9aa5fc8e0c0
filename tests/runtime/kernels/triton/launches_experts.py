"""Launches of the routed experts at the flagship's shape and at one that fits no tile."""

import torch

from runtime.kernels.triton_ops.experts import DEFAULT_TUNING, Cut, Tuning, expert_rows
from runtime.record import RecordLayout
from runtime.spec import ExpertFormat


def decode(layout: RecordLayout, dtype: torch.dtype, num_rows: int = 1, tuning: Tuning = DEFAULT_TUNING) -> None:
    pool = torch.empty(2, layout.record_bytes, dtype=torch.uint8)
    slots = torch.zeros(num_rows, 10, dtype=torch.int32)
    expert_rows(layout, pool, slots, torch.empty(num_rows, layout.hidden, dtype=dtype), tuning=tuning)


def flagship(expert_format: ExpertFormat) -> RecordLayout:
    return RecordLayout.build(2560, 640, expert_format)


def launch_nvfp4() -> None:
    decode(flagship("nvfp4"), torch.float32)


def launch_nvfp4_through_shared_memory() -> None:
    decode(flagship("nvfp4"), torch.bfloat16, 4, Tuning(Cut(16, 4), Cut(32, 2, stages=3)))


def launch_selected_nvfp4_of_odd_widths() -> None:
    layout = RecordLayout.build(208, 48, "nvfp4")
    pool = torch.empty(2, layout.record_bytes, dtype=torch.uint8)
    slots = torch.zeros(2, 3, dtype=torch.int32)
    hidden = torch.empty(2, 208, dtype=torch.bfloat16)
    expert_rows(layout, pool, slots, hidden, torch.zeros(2, 3, dtype=torch.int32), 1)


def launch_fp8() -> None:
    decode(flagship("fp8"), torch.bfloat16)


def launch_bf16() -> None:
    decode(flagship("bf16"), torch.bfloat16)
