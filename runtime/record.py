"""The expert record: all bytes of one routed expert, contiguous, in whole lines of memory; the same in store and slot.

Order: gate+up codes, gate+up scales, down codes, down scales, and at the very end three fp32 global scales (gate, up,
down). Parts are 16-byte aligned.
An FP8 record has e4m3 values as codes, and as scales one fp32 per row and 128 inputs: so one layout holds what was
stored with one scale, one per row or one per 128 x 128 block. A plain record holds gate+up values, then down values.
Offsets are bytes from the record's start.
"""

from dataclasses import dataclass

from runtime.spec import ExpertFormat, ModelSpec

PART_ALIGNMENT = 16
RECORD_ALIGNMENT = 128
"""A GPU reads host memory by such lines: where records share one, it reads it twice, and all others in two halves."""
DISK_BLOCK_BYTES = 4096
"""What reads past the page cache are aligned to, in the file and in memory."""
NVFP4_GROUP = 16
"""Consecutive input elements that share one e4m3 scale."""

FP8_BLOCK = 128
"""Consecutive input elements of an FP8 weight that share one fp32 scale."""

PLAIN_ELEMENT_BYTES: dict[str, int] = {"bf16": 2, "fp16": 2, "fp32": 4}


def align(num_bytes: int, alignment: int = PART_ALIGNMENT) -> int:
    """`num_bytes` rounded up to the alignment."""
    return -(-num_bytes // alignment) * alignment


def whole_blocks(num_bytes: int) -> int:
    """`num_bytes` rounded up to blocks of a disk."""
    return -(-num_bytes // DISK_BLOCK_BYTES) * DISK_BLOCK_BYTES


@dataclass(frozen=True)
class RecordLayout:
    """Byte offsets of one expert's parts; gate rows come before up rows. Scale offsets mean nothing if plain."""

    expert_format: ExpertFormat
    hidden: int
    intermediate: int
    gate_up_offset: int
    gate_up_scale_offset: int
    down_offset: int
    down_scale_offset: int
    global_scale_offset: int
    record_bytes: int

    @classmethod
    def build(cls, hidden: int, intermediate: int, expert_format: ExpertFormat) -> "RecordLayout":
        """Lay out one expert of [2*intermediate, hidden] and [hidden, intermediate]."""
        if expert_format == "nvfp4":
            gate_up_codes = 2 * intermediate * (hidden // 2)
            gate_up_scales = 2 * intermediate * (-(-hidden // NVFP4_GROUP))
            down_codes = hidden * (intermediate // 2)
            down_scales = hidden * (-(-intermediate // NVFP4_GROUP))
            scalars = 12
        elif expert_format == "fp8":
            gate_up_codes, down_codes = 2 * intermediate * hidden, hidden * intermediate
            gate_up_scales = 4 * 2 * intermediate * (-(-hidden // FP8_BLOCK))
            down_scales = 4 * hidden * (-(-intermediate // FP8_BLOCK))
            scalars = 0
        else:
            element_bytes = PLAIN_ELEMENT_BYTES[expert_format]
            gate_up_codes = 2 * intermediate * hidden * element_bytes
            down_codes = hidden * intermediate * element_bytes
            gate_up_scales = down_scales = scalars = 0
        gate_up_scale_offset = align(gate_up_codes)
        down_offset = gate_up_scale_offset + align(gate_up_scales)
        down_scale_offset = down_offset + align(down_codes)
        record_bytes = align(down_scale_offset + align(down_scales) + align(scalars), RECORD_ALIGNMENT)
        return cls(
            expert_format,
            hidden,
            intermediate,
            0,
            gate_up_scale_offset,
            down_offset,
            down_scale_offset,
            record_bytes - align(scalars),
            record_bytes,
        )

    @classmethod
    def of(cls, spec: ModelSpec, layer: int) -> "RecordLayout":
        """The record of a layer's routed experts."""
        return cls.build(spec.hidden_size, spec.moe.intermediate, spec.weights.format_of(layer))

    @classmethod
    def of_layers(cls, spec: ModelSpec) -> "tuple[RecordLayout, ...]":
        """Of all layers; a slot is as large as the largest."""
        return tuple(cls.of(spec, layer) for layer in range(spec.num_layers))
