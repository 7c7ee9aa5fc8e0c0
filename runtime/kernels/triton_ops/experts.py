"""Routed experts of 1 to 4 rows from record bytes: the twin of `torch_ops.experts.expert_rows`.

Two launches: gate and up rows with SiLU(gate) * up into a scratch of activations, then the down rows. A program
computes a few rows for one route, so a route's bits depend neither on the other routes nor on where its record lies.

Sums. A thread adds its products in rising order of input, tile by tile; then the lanes that share a row are added. The
tile's width follows from the record's shape alone (`_tile_of`), and with it who adds what: `Tuning` may change how many
rows a program takes and by how many warps, as long as a warp still holds whole rows.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.narrow_floats import E4M3_SCALE, dot_word, e4m3_small
from runtime.kernels.triton_ops.rows import check_aligned, check_contiguous
from runtime.record import FP8_BLOCK, NVFP4_GROUP, RecordLayout

_PLAIN_TYPES = {"bf16": tl.bfloat16, "fp16": tl.float16, "fp32": tl.float32}
_LARGEST_GROUP_TILE = 32
"""NVFP4 groups in a tile: at 16 bytes per lane a row takes half a warp."""
_LANES_PER_WARP = 32
_WIDE_TILE = FP8_BLOCK
"""Inputs in a tile of plain and FP8 records, so that a row of it has one scale."""
_WIDE_ROWS = 16
"""Rows per program of those; 16 bytes per lane at one byte a weight."""

_RAISED = tl.constexpr(2.0**64)
"""Inputs are multiplied by it, since decoded e2m1 numbers are near 2^-126: products stay far from both ends of fp32."""
_LOWERED = tl.constexpr(2.0**62)
"""What is then left of `E2M1_SCALE`."""


@dataclass(frozen=True)
class Cut:
    """How one launch is cut into programs. Changes time, never bits."""

    rows: int
    """Output rows per program; of gate and up, as many of each."""
    num_warps: int
    stages: int = 0
    """Tiles under way through shared memory; 0: the next one only, through registers."""
    unroll: int = 1
    """Tiles per turn of the loop, where they don't go through shared memory."""
    ahead: int = 1
    """Tiles under way into registers: 1 or 2."""


GATE_UP_CUTS = (
    Cut(8, 4, unroll=5),
    Cut(4, 1, unroll=5),
    Cut(8, 2, unroll=5),
    Cut(16, 4, unroll=5),
    Cut(8, 4, unroll=1),
    Cut(4, 1, stages=3),
    Cut(4, 2, unroll=1, ahead=2),
    Cut(8, 2, unroll=1, ahead=2),
    Cut(8, 4, stages=3),
)
DOWN_CUTS = (
    Cut(16, 1, unroll=5, ahead=2),
    Cut(16, 2, unroll=5, ahead=2),
    Cut(32, 2, unroll=5, ahead=2),
    Cut(16, 1, unroll=5),
    Cut(32, 4, unroll=5),
    Cut(8, 1, unroll=5, ahead=2),
    Cut(16, 2, unroll=1, ahead=2),
    Cut(16, 1, stages=5),
)
"""What `scripts/bench_kernels.py` sweeps at the flagship's shape. On an H200 blocks of one warp, all resident at once,
lose 2 us to the default, and tiles through shared memory take twice as long."""


@dataclass(frozen=True)
class Tuning:
    """The cut of both launches."""

    gate_up: Cut = Cut(8, 4, unroll=5)
    down: Cut = Cut(32, 4, unroll=5)


DEFAULT_TUNING = Tuning()


@triton.jit
def _load_inputs(x_ptr, groups, is_group):
    """The inputs of every group side by side, raised: fp32 [groups, 16]. The hint lets a warp load a line at once."""
    places = groups[:, None] * 16 + tl.arange(0, 16)[None, :]
    inputs = tl.load(tl.multiple_of(x_ptr + places, [1, 1]), mask=is_group[:, None], other=0.0)
    return inputs.to(tl.float32) * _RAISED


@triton.jit
def _hand_out(inputs, TILE: tl.constexpr):
    """The same as a tuple of 16 fp32 [groups]: a lane has all inputs of its group. Had it loaded them itself, every
    load of a warp would have touched 16 lines."""
    # Bit by bit of the input's number, the lowest first.
    x0, x1 = tl.split(tl.reshape(inputs, [TILE, 8, 2]))
    x00, x10 = tl.split(tl.reshape(x0, [TILE, 4, 2]))
    x01, x11 = tl.split(tl.reshape(x1, [TILE, 4, 2]))
    x000, x100 = tl.split(tl.reshape(x00, [TILE, 2, 2]))
    x001, x101 = tl.split(tl.reshape(x01, [TILE, 2, 2]))
    x010, x110 = tl.split(tl.reshape(x10, [TILE, 2, 2]))
    x011, x111 = tl.split(tl.reshape(x11, [TILE, 2, 2]))
    x0000, x1000 = tl.split(x000)
    x0001, x1001 = tl.split(x001)
    x0010, x1010 = tl.split(x010)
    x0011, x1011 = tl.split(x011)
    x0100, x1100 = tl.split(x100)
    x0101, x1101 = tl.split(x101)
    x0110, x1110 = tl.split(x110)
    x0111, x1111 = tl.split(x111)
    return (
        x0000, x0001, x0010, x0011, x0100, x0101, x0110, x0111, x1000, x1001, x1010, x1011, x1100, x1101, x1110, x1111,
    )  # fmt: skip


@triton.jit
def _load_groups(codes_ptr, scales_ptr, places, mask):
    """Codes (int64) and scale (int8) of every group. What is masked is any number, as all codes and scales are finite.

    The hints give one group to a lane, whatever the tile's height: who adds what must not depend on that.
    """
    codes = tl.load(tl.multiple_of(codes_ptr + places, [8, 8]), mask=mask)
    return codes, tl.load(tl.multiple_of(scales_ptr + places, [1, 1]), mask=mask)


@triton.jit
def _add_groups(codes, scales, x, total):
    """`total` [rows, groups] plus every group's product with x."""
    products = dot_word(codes.to(tl.int32), x, 0, tl.zeros_like(total))
    products = dot_word((codes >> 32).to(tl.int32), x, 8, products)
    return tl.fma(products, e4m3_small(scales) * E4M3_SCALE, total)


@triton.jit
def _sum_rows(
    codes_ptr,
    scales_ptr,
    x_ptr,
    rows,
    is_row,
    NUM_GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    IS_EVEN: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """fp32 [ROWS], lowered by `_RAISED` and short of the global scale: rows int64 of the matrix times x.

    IS_EVEN promises that `is_row` is all true: one comparison then serves all rows.
    """
    groups = tl.arange(0, TILE)
    places = rows[:, None] * NUM_GROUPS + groups[None, :]
    total = tl.zeros([ROWS, TILE], tl.float32)
    if STAGES:
        # Codes and inputs of several tiles are under way into shared memory.
        for _ in tl.range(0, NUM_GROUPS, TILE, num_stages=STAGES):
            is_group = groups < NUM_GROUPS
            mask = is_group[None, :] if IS_EVEN else is_group[None, :] & is_row[:, None]
            codes, scales = _load_groups(codes_ptr, scales_ptr, places, mask)
            inputs = _load_inputs(x_ptr, groups, is_group)
            total = _add_groups(codes, scales, _hand_out(inputs, TILE), total)
            groups += TILE
            codes_ptr += TILE
            scales_ptr += TILE
    else:
        # The next tile, or the next two, are under way into registers while one is computed.
        is_group = groups < NUM_GROUPS
        mask = is_group[None, :] if IS_EVEN else is_group[None, :] & is_row[:, None]
        codes, scales = _load_groups(codes_ptr, scales_ptr, places, mask)
        inputs = _load_inputs(x_ptr, groups, is_group)
        later_codes, later_scales = codes, scales
        if AHEAD == 2:
            is_group = groups + TILE < NUM_GROUPS
            mask = is_group[None, :] if IS_EVEN else is_group[None, :] & is_row[:, None]
            later_codes, later_scales = _load_groups(codes_ptr + TILE, scales_ptr + TILE, places, mask)
        for _ in tl.range(0, NUM_GROUPS, TILE, loop_unroll_factor=UNROLL):
            groups += TILE
            codes_ptr += TILE
            scales_ptr += TILE
            is_group = groups + (AHEAD - 1) * TILE < NUM_GROUPS
            mask = is_group[None, :] if IS_EVEN else is_group[None, :] & is_row[:, None]
            next_codes, next_scales = _load_groups(
                codes_ptr + (AHEAD - 1) * TILE, scales_ptr + (AHEAD - 1) * TILE, places, mask
            )
            next_inputs = _load_inputs(x_ptr, groups, groups < NUM_GROUPS)
            total = _add_groups(codes, scales, _hand_out(inputs, TILE), total)
            if AHEAD == 2:
                codes, scales = later_codes, later_scales
                later_codes, later_scales = next_codes, next_scales
            else:
                codes, scales = next_codes, next_scales
            inputs = next_inputs
    return tl.sum(total, 1)


@triton.jit
def _record_of(pool_ptr, slots_ptr, kinds_ptr, route, slot_bytes, WANTED: tl.constexpr):
    """The record's address and whether this launch computes the route."""
    slot = tl.load(slots_ptr + route).to(tl.int64)
    is_wanted = slot >= 0
    if WANTED >= 0:
        is_wanted = is_wanted & (tl.load(kinds_ptr + route) == WANTED)
    return pool_ptr + slot * slot_bytes, is_wanted


@triton.jit
def _silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def _nvfp4_gate_up_kernel(
    pool_ptr,
    slots_ptr,
    kinds_ptr,
    hidden_ptr,
    activated_ptr,
    slot_bytes,
    NUM_CHOICES: tl.constexpr,
    HIDDEN: tl.constexpr,
    INTERMEDIATE: tl.constexpr,
    CODES_AT: tl.constexpr,
    SCALES_AT: tl.constexpr,
    GLOBALS_AT: tl.constexpr,
    WANTED: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Program (block of intermediate units, route)."""
    route = tl.program_id(1)
    record_ptr, is_wanted = _record_of(pool_ptr, slots_ptr, kinds_ptr, route, slot_bytes, WANTED)
    if is_wanted:
        NUM_GROUPS: tl.constexpr = HIDDEN // 16
        codes_ptr = (record_ptr + CODES_AT).to(tl.pointer_type(tl.int64))
        scales_ptr = (record_ptr + SCALES_AT).to(tl.pointer_type(tl.int8))
        global_ptr = (record_ptr + GLOBALS_AT).to(tl.pointer_type(tl.float32))
        gate_scale = tl.load(global_ptr) * _LOWERED
        up_scale = tl.load(global_ptr + 1) * _LOWERED
        # Gate and up rows of a unit lie side by side in the tile, far apart in the record.
        units = tl.program_id(0) * ROWS + tl.arange(0, 2 * ROWS) // 2
        parts = tl.arange(0, 2 * ROWS) % 2
        first = tl.program_id(0) * (ROWS * NUM_GROUPS)
        sums = _sum_rows(
            codes_ptr + first,
            scales_ptr + first,
            hidden_ptr + (route // NUM_CHOICES) * HIDDEN,
            (tl.arange(0, 2 * ROWS) // 2).to(tl.int64) + parts * INTERMEDIATE,
            units < INTERMEDIATE,
            NUM_GROUPS,
            2 * ROWS,
            TILE,
            INTERMEDIATE % ROWS == 0,
            STAGES,
            UNROLL,
            AHEAD,
        )
        gate, up = tl.split(tl.reshape(sums, [ROWS, 2]))
        units = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        activated = _silu(gate * gate_scale) * (up * up_scale)
        tl.store(activated_ptr + route * INTERMEDIATE + units, activated, mask=units < INTERMEDIATE)


@triton.jit
def _nvfp4_down_kernel(
    pool_ptr,
    slots_ptr,
    kinds_ptr,
    activated_ptr,
    output_ptr,
    slot_bytes,
    HIDDEN: tl.constexpr,
    INTERMEDIATE: tl.constexpr,
    CODES_AT: tl.constexpr,
    SCALES_AT: tl.constexpr,
    GLOBALS_AT: tl.constexpr,
    WANTED: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Program (block of outputs, route)."""
    route = tl.program_id(1)
    record_ptr, is_wanted = _record_of(pool_ptr, slots_ptr, kinds_ptr, route, slot_bytes, WANTED)
    if is_wanted:
        NUM_GROUPS: tl.constexpr = INTERMEDIATE // 16
        codes_ptr = (record_ptr + CODES_AT).to(tl.pointer_type(tl.int64))
        scales_ptr = (record_ptr + SCALES_AT).to(tl.pointer_type(tl.int8))
        down_scale = tl.load((record_ptr + GLOBALS_AT).to(tl.pointer_type(tl.float32)) + 2) * _LOWERED
        outputs = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        first = tl.program_id(0) * (ROWS * NUM_GROUPS)
        sums = _sum_rows(
            codes_ptr + first,
            scales_ptr + first,
            activated_ptr + route * INTERMEDIATE,
            tl.arange(0, ROWS).to(tl.int64),
            outputs < HIDDEN,
            NUM_GROUPS,
            ROWS,
            TILE,
            HIDDEN % ROWS == 0,
            STAGES,
            UNROLL,
            AHEAD,
        )
        tl.store(output_ptr + route * HIDDEN + outputs, sums * down_scale, mask=outputs < HIDDEN)


@triton.jit
def _wide_rows(
    matrix_ptr,
    scales_ptr,
    x_ptr,
    rows,
    mask,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """fp32 [rows] of a plain matrix (BLOCK 0) or an FP8 one, whose scales stand for BLOCK inputs each."""
    total = tl.zeros([ROWS, TILE], tl.float32)
    for first in range(0, WIDTH, TILE):
        columns = first + tl.arange(0, TILE)
        is_column = columns < WIDTH
        x = tl.load(x_ptr + columns, mask=is_column, other=0.0).to(tl.float32)
        is_weight = mask[:, None] & is_column[None, :]
        stored = tl.load(matrix_ptr + rows[:, None] * WIDTH + columns[None, :], mask=is_weight, other=0)
        if BLOCK:
            scales = tl.load(scales_ptr + rows * ((WIDTH + BLOCK - 1) // BLOCK) + first // BLOCK, mask=mask, other=0.0)
            weights = e4m3_small(stored) * E4M3_SCALE * scales[:, None]
        else:
            weights = stored.to(tl.float32)
        total = tl.fma(weights, x[None, :], total)
    return tl.sum(total, 1)


@triton.jit
def _wide_gate_up_kernel(
    pool_ptr,
    slots_ptr,
    kinds_ptr,
    hidden_ptr,
    activated_ptr,
    slot_bytes,
    NUM_CHOICES: tl.constexpr,
    HIDDEN: tl.constexpr,
    INTERMEDIATE: tl.constexpr,
    VALUES_AT: tl.constexpr,
    SCALES_AT: tl.constexpr,
    WANTED: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    TYPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (block of intermediate units, route)."""
    route = tl.program_id(1)
    record_ptr, is_wanted = _record_of(pool_ptr, slots_ptr, kinds_ptr, route, slot_bytes, WANTED)
    if is_wanted:
        matrix_ptr = (record_ptr + VALUES_AT).to(tl.pointer_type(TYPE))
        scales_ptr = (record_ptr + SCALES_AT).to(tl.pointer_type(tl.float32))
        units = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        mask = units < INTERMEDIATE
        x_ptr = hidden_ptr + (route // NUM_CHOICES) * HIDDEN
        gate = _wide_rows(matrix_ptr, scales_ptr, x_ptr, units, mask, HIDDEN, ROWS, TILE, BLOCK)
        up = _wide_rows(matrix_ptr, scales_ptr, x_ptr, units + INTERMEDIATE, mask, HIDDEN, ROWS, TILE, BLOCK)
        tl.store(activated_ptr + route * INTERMEDIATE + units, _silu(gate) * up, mask=mask)


@triton.jit
def _wide_down_kernel(
    pool_ptr,
    slots_ptr,
    kinds_ptr,
    activated_ptr,
    output_ptr,
    slot_bytes,
    HIDDEN: tl.constexpr,
    INTERMEDIATE: tl.constexpr,
    VALUES_AT: tl.constexpr,
    SCALES_AT: tl.constexpr,
    WANTED: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    TYPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (block of outputs, route)."""
    route = tl.program_id(1)
    record_ptr, is_wanted = _record_of(pool_ptr, slots_ptr, kinds_ptr, route, slot_bytes, WANTED)
    if is_wanted:
        matrix_ptr = (record_ptr + VALUES_AT).to(tl.pointer_type(TYPE))
        scales_ptr = (record_ptr + SCALES_AT).to(tl.pointer_type(tl.float32))
        outputs = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        mask = outputs < HIDDEN
        x_ptr = activated_ptr + route * INTERMEDIATE
        down = _wide_rows(matrix_ptr, scales_ptr, x_ptr, outputs, mask, INTERMEDIATE, ROWS, TILE, BLOCK)
        tl.store(output_ptr + route * HIDDEN + outputs, down, mask=mask)


def _tile_of(num_groups: int) -> int:
    """NVFP4 groups per tile: a divisor if it is not tiny, so that no lane idles; else all groups, masked."""
    divisor = num_groups & -num_groups
    tile = divisor if divisor >= 8 else triton.next_power_of_2(num_groups)
    return min(tile, _LARGEST_GROUP_TILE)


def _rows_of(cut: Cut, tile: int) -> int:
    """The cut's rows, or more where there are lanes for more: lanes of their own must not change who adds what."""
    return max(cut.rows, _LANES_PER_WARP * cut.num_warps // tile)


@dataclass(frozen=True)
class _Call:
    """One call's tensors, as both launches take them."""

    layout: RecordLayout
    pool: Tensor
    slots: Tensor
    kinds: Tensor
    wanted: int
    """-1 wants all kinds."""
    hidden: Tensor
    activated: Tensor
    """fp32 [routes, intermediate]: what the first launch leaves for the second."""
    out: Tensor
    tuning: Tuning


def expert_rows(
    layout: RecordLayout,
    pool: Tensor,
    slots: Tensor,
    hidden: Tensor,
    kinds: Tensor | None = None,
    wanted: int | None = None,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    """fp32 [R, k, hidden] of hidden [R, hidden] and integer slots [R, k]: each route's own output, unweighted.

    A route whose slot is negative, or whose kind (integers [R, k]) is not `wanted`, is not computed: its row of `out`
    stays as it is. pool is uint8 [slots, record_bytes], each slot contiguous and 16-byte aligned. Raises ValueError for
    NVFP4 widths that are no multiple of 16, and for strides and alignments that the kernel does not take.
    """
    if layout.expert_format == "nvfp4" and (layout.hidden % NVFP4_GROUP or layout.intermediate % NVFP4_GROUP):
        raise ValueError(f"NVFP4 experts of {layout.hidden} x {layout.intermediate}: the kernel needs multiples of 16")
    check_aligned(pool=pool)
    check_contiguous(slots=slots, hidden=hidden)
    if out is None:
        out = torch.empty(*slots.shape, layout.hidden, dtype=torch.float32, device=hidden.device)
    activated = torch.empty(slots.numel(), layout.intermediate, dtype=torch.float32, device=hidden.device)
    if wanted is None or kinds is None:
        kinds, wanted = slots, -1
    call = _Call(layout, pool, slots, kinds, wanted, hidden, activated, out, tuning)
    if layout.expert_format == "nvfp4":
        _launch_nvfp4(call)
    else:
        _launch_wide(call)
    return out


def _launch_nvfp4(call: _Call) -> None:
    layout, num_routes = call.layout, call.slots.numel()
    cut, tile = call.tuning.gate_up, _tile_of(layout.hidden // NVFP4_GROUP)
    rows = _rows_of(cut, tile)
    _nvfp4_gate_up_kernel[(triton.cdiv(layout.intermediate, rows), num_routes)](
        call.pool,
        call.slots,
        call.kinds,
        call.hidden,
        call.activated,
        call.pool.stride(0),
        call.slots.shape[1],
        layout.hidden,
        layout.intermediate,
        layout.gate_up_offset,
        layout.gate_up_scale_offset,
        layout.global_scale_offset,
        call.wanted,
        rows,
        tile,
        cut.stages,
        cut.unroll,
        cut.ahead,
        num_warps=cut.num_warps,
    )
    cut, tile = call.tuning.down, _tile_of(layout.intermediate // NVFP4_GROUP)
    rows = _rows_of(cut, tile)
    _nvfp4_down_kernel[(triton.cdiv(layout.hidden, rows), num_routes)](
        call.pool,
        call.slots,
        call.kinds,
        call.activated,
        call.out,
        call.pool.stride(0),
        layout.hidden,
        layout.intermediate,
        layout.down_offset,
        layout.down_scale_offset,
        layout.global_scale_offset,
        call.wanted,
        rows,
        tile,
        cut.stages,
        cut.unroll,
        cut.ahead,
        num_warps=cut.num_warps,
    )


def _launch_wide(call: _Call) -> None:
    layout, num_routes = call.layout, call.slots.numel()
    stored_type = _PLAIN_TYPES.get(layout.expert_format, tl.int8)
    block = FP8_BLOCK if layout.expert_format == "fp8" else 0
    _wide_gate_up_kernel[(triton.cdiv(layout.intermediate, _WIDE_ROWS), num_routes)](
        call.pool,
        call.slots,
        call.kinds,
        call.hidden,
        call.activated,
        call.pool.stride(0),
        call.slots.shape[1],
        layout.hidden,
        layout.intermediate,
        layout.gate_up_offset,
        layout.gate_up_scale_offset,
        call.wanted,
        _WIDE_ROWS,
        _WIDE_TILE,
        stored_type,
        block,
    )
    _wide_down_kernel[(triton.cdiv(layout.hidden, _WIDE_ROWS), num_routes)](
        call.pool,
        call.slots,
        call.kinds,
        call.activated,
        call.out,
        call.pool.stride(0),
        layout.hidden,
        layout.intermediate,
        layout.down_offset,
        layout.down_scale_offset,
        call.wanted,
        _WIDE_ROWS,
        _WIDE_TILE,
        stored_type,
        block,
    )
