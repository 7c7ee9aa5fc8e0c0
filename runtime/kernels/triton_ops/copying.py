"""The miss copy: records from host memory that the device reads, into slots. Twin: `torch_ops.slots.copy_missed`.

Records are cut into pieces, which blocks take in turn: few blocks, many 16-byte loads under way in each.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops.rows import check_aligned, check_contiguous


@dataclass(frozen=True)
class CopyCut:
    """How the miss copy is cut."""

    num_blocks: int = 16
    num_warps: int = 8
    words: int = 4096
    """int32 of one turn of a block: 16 bytes to a thread, 4 times."""


COPY_CUTS = tuple(
    CopyCut(num_blocks, num_warps, 128 * num_warps * loads)
    for num_blocks, num_warps, loads in (
        (16, 8, 4), (8, 8, 4), (8, 16, 4), (32, 8, 4), (16, 16, 4), (16, 8, 8), (16, 8, 2), (32, 4, 4), (64, 4, 2)
    )
)  # fmt: skip
"""What `scripts/bench_kernels.py` sweeps."""
DEFAULT_COPY = CopyCut()


@triton.jit
def copy_piece(source_ptr, target_ptr, piece, RECORD_WORDS: tl.constexpr, WORDS: tl.constexpr):
    """Piece `piece` of a record, from one int32 pointer to another."""
    words = piece * WORDS + tl.arange(0, WORDS)
    is_word = words < RECORD_WORDS
    tl.store(target_ptr + words, tl.load(source_ptr + words, mask=is_word), mask=is_word)


@triton.jit
def record_pair(
    bank_ptr, pool_ptr, missed_experts_ptr, missed_slots_ptr, place, slot_vectors, RECORD_WORDS: tl.constexpr
):
    """Where the record at a place of the work list lies and where it goes: int32 pointers. Slots in 16 bytes."""
    source_ptr = bank_ptr + tl.load(missed_experts_ptr + place).to(tl.int64) * RECORD_WORDS
    return source_ptr, pool_ptr + tl.load(missed_slots_ptr + place).to(tl.int64) * slot_vectors * 4


@triton.jit
def _copy_kernel(
    bank_ptr,
    pool_ptr,
    missed_experts_ptr,
    missed_slots_ptr,
    num_missed_ptr,
    slot_vectors,
    RECORD_WORDS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Program p copies pieces p, p + programs, ... of all missed records, end to end."""
    num_missed = tl.load(num_missed_ptr)
    PIECES: tl.constexpr = (RECORD_WORDS + WORDS - 1) // WORDS
    for piece in range(tl.program_id(0), num_missed * PIECES, tl.num_programs(0)):
        source_ptr, target_ptr = record_pair(
            bank_ptr, pool_ptr, missed_experts_ptr, missed_slots_ptr, piece // PIECES, slot_vectors, RECORD_WORDS
        )
        copy_piece(source_ptr, target_ptr, piece % PIECES, RECORD_WORDS, WORDS)


def check_copy(bank: Tensor, pool: Tensor) -> None:
    """Raises ValueError for records or slots that are no multiple of 16 bytes."""
    check_contiguous(bank=bank)
    if bank.shape[1] % 16:
        raise ValueError(f"records of {bank.shape[1]} bytes are not copied: 16 at a time are")
    check_aligned(pool=pool)


def copy_missed(state: SlotState, bank: Tensor, pool: Tensor, cut: CopyCut = DEFAULT_COPY) -> None:
    """Copy the missed experts' records from bank uint8 [E, record_bytes] into their slots in pool uint8 [slots, >=].

    The bank is host memory that the device can read (pinned), or device memory. Raises ValueError for records or slots
    that are no multiple of 16 bytes.
    """
    check_copy(bank, pool)
    _copy_kernel[(cut.num_blocks,)](
        bank.view(torch.int32),
        pool.view(torch.int32),
        state.missed_experts,
        state.missed_slots,
        state.num_missed,
        pool.stride(0) // 16,
        bank.shape[1] // 4,
        cut.words,
        num_warps=cut.num_warps,
    )
