"""Packs one expert's tensors into its record. Refuses widths and shapes that the record's format can't hold."""

import torch
from torch import Tensor

from runtime.checkpoint.expert_source import ExpertTensors
from runtime.checkpoint.matrices import Fp8Matrix, Matrix, Nvfp4Matrix
from runtime.errors import CheckpointError
from runtime.record import FP8_BLOCK, NVFP4_GROUP, RECORD_ALIGNMENT, RecordLayout

_PLAIN_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def check_layout(layout: RecordLayout) -> None:
    """NVFP4 packs two codes into a byte, so both widths must be even."""
    if layout.expert_format != "nvfp4":
        return
    for name, width in (("hidden_size", layout.hidden), ("moe_intermediate_size", layout.intermediate)):
        if width % 2:
            raise CheckpointError(f"NVFP4 experts need an even {name}, but it is {width}; convert the experts to bf16")


def pack_record(expert: ExpertTensors, layout: RecordLayout, record: Tensor) -> None:
    """Write every byte of `record` (uint8 [record_bytes])."""
    hidden, intermediate = layout.hidden, layout.intermediate
    for end in _part_ends(layout):
        # What alignment adds to the part that ends here.
        record[max(0, end - RECORD_ALIGNMENT) : end] = 0
    parts = (
        (expert.gate, layout.gate_up_offset, layout.gate_up_scale_offset, intermediate, hidden, 0),
        (expert.up, layout.gate_up_offset, layout.gate_up_scale_offset, intermediate, hidden, intermediate),
        (expert.down, layout.down_offset, layout.down_scale_offset, hidden, intermediate, 0),
    )
    for matrix, offset, scale_offset, num_rows, width, first_row in parts:
        if _format_of(matrix, layout) != layout.expert_format:
            raise CheckpointError(
                f"an expert is not stored as {layout.expert_format} like the others; convert all experts to one format"
            )
        if isinstance(matrix, Nvfp4Matrix):
            num_groups = -(-width // NVFP4_GROUP)
            _put(record, offset + first_row * width // 2, matrix.codes.reshape(num_rows, width // 2))
            _put(record, scale_offset + first_row * num_groups, matrix.scales.reshape(num_rows, num_groups))
        elif isinstance(matrix, Fp8Matrix):
            num_groups = -(-width // FP8_BLOCK)
            _put(record, offset + first_row * width, matrix.values.reshape(num_rows, width))
            _put(record, scale_offset + first_row * num_groups * 4, matrix.scales.reshape(num_rows, num_groups))
        else:
            values = matrix.values.to(_PLAIN_DTYPES[layout.expert_format]).reshape(num_rows, width)
            _put(record, offset + first_row * width * values.element_size(), values)
    if layout.expert_format == "nvfp4":
        scales = [m.global_scale for m in (expert.gate, expert.up, expert.down) if isinstance(m, Nvfp4Matrix)]
        _put(record, layout.global_scale_offset, torch.tensor(scales, dtype=torch.float32))


def _part_ends(layout: RecordLayout) -> tuple[int, ...]:
    scales = (layout.gate_up_scale_offset, layout.down_offset, layout.down_scale_offset)
    return (*scales, layout.global_scale_offset, layout.record_bytes)


def _format_of(matrix: Matrix, layout: RecordLayout) -> str:
    """A plain matrix takes any plain format."""
    if isinstance(matrix, Nvfp4Matrix):
        return "nvfp4"
    if isinstance(matrix, Fp8Matrix):
        return "fp8"
    return layout.expert_format if layout.expert_format in _PLAIN_DTYPES else "plain"


def _put(record: Tensor, offset: int, values: Tensor) -> None:
    flat = values.contiguous().view(torch.uint8).flatten()
    record[offset : offset + flat.numel()] = flat
