"""Routed experts of 1 to 4 rows from record bytes, in one launch. Twins: `torch_ops.experts`.

Gate and up rows with SiLU(gate) * up go into a scratch of activations, then come the down rows, whose blocks wait for
the activations of their route. A block computes a few rows for one route, so a route's bits depend neither on the other
routes nor on where its record lies or when it came there.

`expert_rows_by_arrival` does the miss copy in the same launch: its first blocks copy and count what has arrived, the
others compute the routes that need no copy and then each missed one as it comes. A record comes in two parts: what gate
and up rows need, then what is left, so that at the end of the copy no more than down rows of one record are to be done.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops.arrivals import COUNTER_STRIDE, FAR_STRIDE, announce, await_parts, await_parts_once
from runtime.kernels.triton_ops.copying import check_copy, copy_piece, record_pair
from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.nvfp4_rows import LOWERED, fill_warps, load_first_tiles, sum_tiles, tile_groups
from runtime.kernels.triton_ops.rows import check_aligned, check_contiguous, silu
from runtime.kernels.triton_ops.wide_rows import STORED_TYPES, sum_wide_rows
from runtime.kernels.triton_ops.workspace import NUM_COUNTERS, arrival_counters
from runtime.record import NVFP4_GROUP, RecordLayout

_WIDE_ROWS = 16
"""Rows per block of plain and FP8 records; 16 bytes per lane at one byte a weight."""
_STRIDE = tl.constexpr(COUNTER_STRIDE)
_FAR_STRIDE = tl.constexpr(FAR_STRIDE)


@dataclass(frozen=True)
class Tuning:
    """How the launch is cut into blocks. Changes time, never bits."""

    num_warps: int = 4
    up_rows: int = 8
    """Intermediate units per block: a gate and an up row each."""
    down_rows: int = 32
    up_ahead: int = 1
    """Tiles under way into registers while one is computed."""
    down_ahead: int = 5
    num_copiers: int = 32
    """Blocks that copy."""
    copied_words: int = 2048
    """int32 of one turn of a copier."""
    most_registers: int | None = None
    """Per thread; fewer make room for more blocks. None leaves it to the compiler."""


DEFAULT_TUNING = Tuning()
TUNINGS = (
    DEFAULT_TUNING,
    Tuning(most_registers=64),
    Tuning(down_ahead=1, most_registers=64),
    Tuning(up_ahead=2),
    Tuning(up_rows=16),
    Tuning(up_rows=16, up_ahead=2),
    Tuning(up_rows=16, down_rows=64),
    Tuning(up_rows=16, down_ahead=2),
    Tuning(down_rows=16, most_registers=64),
    Tuning(8, 16, 64, num_copiers=16, copied_words=4096, most_registers=64),
    Tuning(2, 8, 32, num_copiers=64, copied_words=1024, most_registers=96),
)
"""What `scripts/bench_kernels.py` sweeps at the flagship's shape."""


class Cut(NamedTuple):
    """A tuning as the kernel takes it, for one record layout."""

    up_rows: int
    up_tile: int
    up_ahead: int
    up_blocks: int
    down_rows: int
    down_tile: int
    down_ahead: int
    down_blocks: int
    num_copiers: int
    copied_words: int
    pieces: int
    """Of a record, as copiers take them."""
    up_pieces: int
    """The first of them, with all that gate and up rows need."""
    wide_type: Any
    """Triton's type of what a plain or FP8 record stores, None of NVFP4."""


def cut_of(layout: RecordLayout, tuning: Tuning, is_by_arrival: bool) -> Cut:
    up_rows = down_rows = _WIDE_ROWS
    up_tile, down_tile = tile_groups(layout.hidden // NVFP4_GROUP), tile_groups(layout.intermediate // NVFP4_GROUP)
    if layout.expert_format == "nvfp4":
        up_rows = fill_warps(tuning.up_rows, up_tile, tuning.num_warps)
        down_rows = fill_warps(tuning.down_rows, down_tile, tuning.num_warps)
    pieces = triton.cdiv(layout.record_bytes, 4 * tuning.copied_words)
    return Cut(
        up_rows, up_tile, tuning.up_ahead, triton.cdiv(layout.intermediate, up_rows),
        down_rows, down_tile, tuning.down_ahead, triton.cdiv(layout.hidden, down_rows),
        tuning.num_copiers if is_by_arrival else 0, tuning.copied_words,
        pieces, min(pieces, 1 + triton.cdiv(layout.down_offset, 4 * tuning.copied_words)),
        STORED_TYPES.get(layout.expert_format),
    )  # fmt: skip


@triton.jit
def _true_rows(numbers, NUM_ROWS: tl.constexpr, ROWS: tl.constexpr):
    """Which rows exist; a constant where blocks of ROWS leave no rest."""
    if NUM_ROWS % ROWS == 0:
        return tl.full(numbers.shape, True, tl.int1)
    return numbers < NUM_ROWS


@triton.jit
def _copy_arriving(
    bank_ptr, pool_ptr, missed_experts_ptr, missed_slots_ptr, num_missed_ptr, arrived_ptr, slot_bytes,
    LAYOUT: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """A copier's share of all missed records, in two parts each: counters 2 * place and 2 * place + 1."""
    RECORD_WORDS: tl.constexpr = LAYOUT.record_bytes // 4
    copier = tl.program_id(0)
    # Where the first record lies is asked for together with whether there is one.
    num_missed = tl.load(num_missed_ptr)
    source_ptr, target_ptr = record_pair(
        bank_ptr, pool_ptr, missed_experts_ptr, missed_slots_ptr, 0, slot_bytes // 16, RECORD_WORDS
    )
    for part in range(2 * num_missed):
        place = part // 2
        if part > 1:
            source_ptr, target_ptr = record_pair(
                bank_ptr, pool_ptr, missed_experts_ptr, missed_slots_ptr, place, slot_bytes // 16, RECORD_WORDS
            )
        record = place * CUT.pieces
        first = record + (part % 2) * CUT.up_pieces
        end = record + tl.where(part % 2 == 0, CUT.up_pieces, CUT.pieces)
        # Pieces go round the copiers from record to record, so that all have as much to do.
        mine = first + (copier + CUT.num_copiers - first % CUT.num_copiers) % CUT.num_copiers
        for number in range(mine, end, CUT.num_copiers):
            # The global scales are at the end of a record, and gate and up need them.
            piece = (number - record + CUT.pieces - 1) % CUT.pieces
            copy_piece(source_ptr, target_ptr, piece, RECORD_WORDS, CUT.copied_words)
        announce(arrived_ptr + part * _FAR_STRIDE)


@triton.jit
def _route_at(routes_ptr, position, num_routes, IS_BY_ARRIVAL: tl.constexpr):
    """Route, slot (-1: not computed) and place in the work list (-1: needs no copy) at a position of the order."""
    if IS_BY_ARRIVAL:
        place = tl.load(routes_ptr + 2 * num_routes + position)
        return tl.load(routes_ptr + position), tl.load(routes_ptr + num_routes + position), place
    return position, tl.load(routes_ptr + position), -1


@triton.jit
def _activate(record_ptr, x_ptr, block, LAYOUT: tl.constexpr, CUT: tl.constexpr):
    """SiLU(gate) * up of a block of units, fp32 [up_rows]."""
    ROWS: tl.constexpr = CUT.up_rows
    if CUT.wide_type is None:
        NUM_GROUPS: tl.constexpr = LAYOUT.hidden // 16
        first = block * (ROWS * NUM_GROUPS)
        codes_ptr = (record_ptr + LAYOUT.gate_up_offset).to(tl.pointer_type(tl.int64)) + first
        scales_ptr = (record_ptr + LAYOUT.gate_up_scale_offset).to(tl.pointer_type(tl.int8)) + first
        global_ptr = (record_ptr + LAYOUT.global_scale_offset).to(tl.pointer_type(tl.float32))
        # Gate rows, then up rows, far apart in the record: a lane's rows differ by constants.
        units = tl.arange(0, 2 * ROWS) % ROWS
        rows = units.to(tl.int64) + tl.arange(0, 2 * ROWS) // ROWS * LAYOUT.intermediate
        is_row = _true_rows(block * ROWS + units, LAYOUT.intermediate, ROWS)
        tiles = load_first_tiles(codes_ptr, scales_ptr, rows, is_row, CUT.up_ahead, NUM_GROUPS, CUT.up_tile)
        sums = sum_tiles(
            tiles, codes_ptr, scales_ptr, x_ptr, rows, is_row, CUT.up_ahead, NUM_GROUPS, 2 * ROWS, CUT.up_tile
        )
        gate, up = tl.split(tl.permute(tl.reshape(sums, [2, ROWS]), (1, 0)))
        gate, up = gate * (tl.load(global_ptr) * LOWERED), up * (tl.load(global_ptr + 1) * LOWERED)
    else:
        matrix_ptr, scales_ptr = record_ptr + LAYOUT.gate_up_offset, record_ptr + LAYOUT.gate_up_scale_offset
        units = block * ROWS + tl.arange(0, ROWS)
        is_row = units < LAYOUT.intermediate
        rows = units.to(tl.int64)
        gate = sum_wide_rows(matrix_ptr, scales_ptr, x_ptr, rows, is_row, LAYOUT.hidden, ROWS, CUT.wide_type)
        rows += LAYOUT.intermediate
        up = sum_wide_rows(matrix_ptr, scales_ptr, x_ptr, rows, is_row, LAYOUT.hidden, ROWS, CUT.wide_type)
    return silu(gate) * up


@triton.jit
def _down(
    record_ptr, activated_ptr, counter_ptr, arrived_ptr, is_copied, block, LAYOUT: tl.constexpr, CUT: tl.constexpr
):
    """A block of outputs, fp32 [down_rows]. Waits for the route's activations, with weights under way meanwhile; where
    the weights are copied, they come last."""
    ROWS: tl.constexpr = CUT.down_rows
    if is_copied:
        await_parts_once(counter_ptr, CUT.up_blocks, CUT.down_blocks)
        await_parts(arrived_ptr, CUT.num_copiers)
    if CUT.wide_type is None:
        NUM_GROUPS: tl.constexpr = LAYOUT.intermediate // 16
        first = block * (ROWS * NUM_GROUPS)
        codes_ptr = (record_ptr + LAYOUT.down_offset).to(tl.pointer_type(tl.int64)) + first
        scales_ptr = (record_ptr + LAYOUT.down_scale_offset).to(tl.pointer_type(tl.int8)) + first
        global_scale = tl.load((record_ptr + LAYOUT.global_scale_offset).to(tl.pointer_type(tl.float32)) + 2)
        rows = tl.arange(0, ROWS).to(tl.int64)
        is_row = _true_rows(block * ROWS + tl.arange(0, ROWS), LAYOUT.hidden, ROWS)
        tiles = load_first_tiles(codes_ptr, scales_ptr, rows, is_row, CUT.down_ahead, NUM_GROUPS, CUT.down_tile)
        if not is_copied:
            await_parts_once(counter_ptr, CUT.up_blocks, CUT.down_blocks)
        sums = sum_tiles(
            tiles, codes_ptr, scales_ptr, activated_ptr, rows, is_row, CUT.down_ahead, NUM_GROUPS, ROWS, CUT.down_tile
        )
        sums *= global_scale * LOWERED
    else:
        if not is_copied:
            await_parts_once(counter_ptr, CUT.up_blocks, CUT.down_blocks)
        outputs = block * ROWS + tl.arange(0, ROWS)
        sums = sum_wide_rows(
            record_ptr + LAYOUT.down_offset, record_ptr + LAYOUT.down_scale_offset, activated_ptr,
            outputs.to(tl.int64), outputs < LAYOUT.hidden, LAYOUT.intermediate, ROWS, CUT.wide_type,
        )  # fmt: skip
    return sums


def _name_of(specialization: Any) -> str:
    """A profiler's trace tells launches that copy from those that don't."""
    return "_copy_and_experts_kernel" if specialization.constants["CUT"].num_copiers else "_experts_kernel"


# One binary for any number of rows.
@triton.jit(repr=_name_of, do_not_specialize=["num_routes"])
def _experts_kernel(
    bank_ptr,
    pool_ptr,
    routes_ptr,
    missed_experts_ptr,
    missed_slots_ptr,
    num_missed_ptr,
    arrived_ptr,
    counters_ptr,
    hidden_ptr,
    activated_ptr,
    output_ptr,
    slot_bytes,
    num_routes,
    NUM_CHOICES: tl.constexpr,
    LAYOUT: tl.constexpr,
    CUT: tl.constexpr,
):
    """Blocks in their order: the copiers; (route, block of units); (route, block of outputs)."""
    await_last_launch()
    IS_BY_ARRIVAL: tl.constexpr = CUT.num_copiers > 0
    number = tl.program_id(0) - CUT.num_copiers
    num_ups = num_routes * CUT.up_blocks
    if number < 0:
        _copy_arriving(
            bank_ptr, pool_ptr.to(tl.pointer_type(tl.int32)), missed_experts_ptr, missed_slots_ptr, num_missed_ptr,
            arrived_ptr, slot_bytes, LAYOUT, CUT,
        )  # fmt: skip
    elif number < num_ups:
        block = number % CUT.up_blocks
        route, slot, place = _route_at(routes_ptr, number // CUT.up_blocks, num_routes, IS_BY_ARRIVAL)
        if slot >= 0:
            if place >= 0:
                await_parts(arrived_ptr + 2 * place * _FAR_STRIDE, CUT.num_copiers)
            x_ptr = hidden_ptr + route // NUM_CHOICES * LAYOUT.hidden
            activated = _activate(pool_ptr + slot.to(tl.int64) * slot_bytes, x_ptr, block, LAYOUT, CUT)
            units = block * CUT.up_rows + tl.arange(0, CUT.up_rows)
            target_ptr = activated_ptr + route * LAYOUT.intermediate
            tl.store(target_ptr + units, activated, mask=units < LAYOUT.intermediate)
            announce(counters_ptr + route * _STRIDE)
    else:
        number -= num_ups
        block = number % CUT.down_blocks
        route, slot, place = _route_at(routes_ptr, number // CUT.down_blocks, num_routes, IS_BY_ARRIVAL)
        if slot >= 0:
            record_ptr = pool_ptr + slot.to(tl.int64) * slot_bytes
            source_ptr = activated_ptr + route * LAYOUT.intermediate
            values = _down(
                record_ptr, source_ptr, counters_ptr + route * _STRIDE, arrived_ptr + (2 * place + 1) * _FAR_STRIDE,
                place >= 0, block, LAYOUT, CUT,
            )  # fmt: skip
            outputs = block * CUT.down_rows + tl.arange(0, CUT.down_rows)
            tl.store(output_ptr + route * LAYOUT.hidden + outputs, values, mask=outputs < LAYOUT.hidden)


def _check(layout: RecordLayout, pool: Tensor, routes: Tensor, hidden: Tensor) -> None:
    if layout.expert_format == "nvfp4" and (layout.hidden % NVFP4_GROUP or layout.intermediate % NVFP4_GROUP):
        raise ValueError(f"NVFP4 experts of {layout.hidden} x {layout.intermediate}: the kernel needs multiples of 16")
    check_aligned(pool=pool)
    check_contiguous(routes=routes, hidden=hidden)


def expert_rows(
    layout: RecordLayout,
    pool: Tensor,
    slots: Tensor,
    hidden: Tensor,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    """fp32 [R, k, hidden] of hidden [R, hidden] and integer slots [R, k]: each route's own output, unweighted.

    A route whose slot is negative is not computed: its row of `out` stays as it is. pool is uint8 [slots,
    record_bytes], each slot contiguous and 16-byte aligned. Raises ValueError for NVFP4 widths that are no multiple of
    16, and for strides and alignments that the kernel does not take.
    """
    _check(layout, pool, slots, hidden)
    return _launch(layout, pool, slots, hidden, slots.shape[1], out, tuning)


def expert_rows_by_arrival(
    layout: RecordLayout,
    state: SlotState,
    bank: Tensor,
    pool: Tensor,
    arrivals: Tensor,
    hidden: Tensor,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    """`copy_missed` and then `expert_rows`, bit for bit, with every route computed as soon as its record is there.

    `arrivals` int32 [3, R * k] and the work list in `state` are those of the *ensure* just before: one launch for each
    of them. hidden is [R, hidden]; the rest is as in those two, and so are the errors.
    """
    check_copy(bank, pool)
    _check(layout, pool, arrivals, hidden)
    num_choices = arrivals.shape[1] // hidden.shape[0]
    return _launch(layout, pool, arrivals, hidden, num_choices, out, tuning, state, bank)


def _counters(num_routes: int, device: torch.device) -> Tensor:
    """Of each route's activations. A chunk of a prompt has too many routes for those that are kept."""
    num_counters = num_routes * COUNTER_STRIDE
    if num_counters <= NUM_COUNTERS:
        return arrival_counters(device, num_counters)
    return torch.zeros(num_counters, dtype=torch.int32, device=device)


def _launch(
    layout: RecordLayout,
    pool: Tensor,
    routes: Tensor,
    hidden: Tensor,
    num_choices: int,
    out: Tensor | None,
    tuning: Tuning,
    state: SlotState | None = None,
    bank: Tensor | None = None,
) -> Tensor:
    num_rows, device = hidden.shape[0], hidden.device
    num_routes = num_rows * num_choices
    cut = cut_of(layout, tuning, is_by_arrival=state is not None)
    if out is None:
        out = torch.empty(num_rows, num_choices, layout.hidden, dtype=torch.float32, device=device)
    activated = torch.empty(num_routes, layout.intermediate, dtype=torch.float32, device=device)
    counters = _counters(num_routes, device)
    # Without a copy nobody reads what belongs to it.
    work = (counters,) * 4
    if state is not None:
        work = (state.missed_experts, state.missed_slots, state.num_missed, state.arrived)
    _experts_kernel[(cut.num_copiers + num_routes * (cut.up_blocks + cut.down_blocks),)](
        counters if bank is None else bank.view(torch.int32),
        pool,
        routes,
        *work,
        counters,
        hidden,
        activated,
        out,
        pool.stride(0),
        num_routes,
        num_choices,
        layout,
        cut,
        num_warps=tuning.num_warps,
        maxnreg=tuning.most_registers,
        # A prompt's experts wait for copies on another stream.
        **({} if state is None else begins_early(device)),
    )
    return out
