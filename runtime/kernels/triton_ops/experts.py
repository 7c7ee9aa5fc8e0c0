"""Routed experts of 1 to 4 rows from record bytes: the twin of `torch_ops.experts.ExpertCompute.decode`.

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

from runtime.errors import CheckpointError
from runtime.kernels.triton_ops.narrow_floats import E4M3_SCALE, dot_word, e4m3_small
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


GATE_UP_CUTS = tuple(
    Cut(rows, num_warps, *loop)
    for rows, num_warps in ((8, 2), (8, 4), (16, 2), (16, 4), (16, 8), (32, 8))
    for loop in ((0, 1), (0, 5), (3, 1), (5, 1))
)
DOWN_CUTS = tuple(
    Cut(rows, num_warps, *loop)
    for rows, num_warps in ((16, 2), (32, 2), (32, 4), (64, 4), (64, 8), (128, 8))
    for loop in ((0, 1), (0, 5), (3, 1), (5, 1))
)
"""What `scripts/bench_kernels.py` sweeps at the flagship's shape."""


@dataclass(frozen=True)
class Tuning:
    """The cut of both launches."""

    gate_up: Cut = Cut(16, 4, unroll=5)
    down: Cut = Cut(32, 4, unroll=5)


DEFAULT_TUNING = Tuning()


@triton.jit
def _one_input(x_ptr, groups, mask, NUMBER: tl.constexpr, NUM_GROUPS: tl.constexpr, IS_PLANAR: tl.constexpr):
    if IS_PLANAR:
        return tl.load(x_ptr + NUMBER * NUM_GROUPS + groups, mask=mask, other=0.0)
    return tl.load(x_ptr + groups * 16 + NUMBER, mask=mask, other=0.0).to(tl.float32) * _RAISED


@triton.jit
def _four_inputs(
    x_ptr,
    groups,
    mask,
    FIRST: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    IS_PLANAR: tl.constexpr,
    IS_BF16: tl.constexpr,
):
    if IS_BF16:
        # In one load: lanes are a group apart, and four narrow ones would touch the same lines four times.
        four = tl.load(x_ptr.to(tl.pointer_type(tl.int64)) + groups * 4 + FIRST // 4, mask=mask, other=0)
        low, high = four.to(tl.int32), (four >> 32).to(tl.int32)
        return (
            (low << 16).to(tl.float32, bitcast=True) * _RAISED,
            (low & -65536).to(tl.float32, bitcast=True) * _RAISED,
            (high << 16).to(tl.float32, bitcast=True) * _RAISED,
            (high & -65536).to(tl.float32, bitcast=True) * _RAISED,
        )
    return (
        _one_input(x_ptr, groups, mask, FIRST, NUM_GROUPS, IS_PLANAR),
        _one_input(x_ptr, groups, mask, FIRST + 1, NUM_GROUPS, IS_PLANAR),
        _one_input(x_ptr, groups, mask, FIRST + 2, NUM_GROUPS, IS_PLANAR),
        _one_input(x_ptr, groups, mask, FIRST + 3, NUM_GROUPS, IS_PLANAR),
    )


@triton.jit
def _load_inputs(x_ptr, groups, mask, NUM_GROUPS: tl.constexpr, IS_PLANAR: tl.constexpr, IS_BF16: tl.constexpr):
    """The 16 inputs of every group, raised: a tuple of 16 fp32 [groups].

    Planar inputs are already raised and lie input by input, [16, NUM_GROUPS]; others lie group by group.
    """
    return (
        _four_inputs(x_ptr, groups, mask, 0, NUM_GROUPS, IS_PLANAR, IS_BF16)
        + _four_inputs(x_ptr, groups, mask, 4, NUM_GROUPS, IS_PLANAR, IS_BF16)
        + _four_inputs(x_ptr, groups, mask, 8, NUM_GROUPS, IS_PLANAR, IS_BF16)
        + _four_inputs(x_ptr, groups, mask, 12, NUM_GROUPS, IS_PLANAR, IS_BF16)
    )


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
    IS_PLANAR: tl.constexpr,
    IS_BF16: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
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
            x = _load_inputs(x_ptr, groups, is_group, NUM_GROUPS, IS_PLANAR, IS_BF16)
            total = _add_groups(codes, scales, x, total)
            groups += TILE
            codes_ptr += TILE
            scales_ptr += TILE
    else:
        # The next tile is under way into registers while one is computed.
        is_group = groups < NUM_GROUPS
        mask = is_group[None, :] if IS_EVEN else is_group[None, :] & is_row[:, None]
        codes, scales = _load_groups(codes_ptr, scales_ptr, places, mask)
        for _ in tl.range(0, NUM_GROUPS, TILE, loop_unroll_factor=UNROLL):
            x = _load_inputs(x_ptr, groups, groups < NUM_GROUPS, NUM_GROUPS, IS_PLANAR, IS_BF16)
            groups += TILE
            codes_ptr += TILE
            scales_ptr += TILE
            is_group = groups < NUM_GROUPS
            mask = is_group[None, :] if IS_EVEN else is_group[None, :] & is_row[:, None]
            next_codes, next_scales = _load_groups(codes_ptr, scales_ptr, places, mask)
            total = _add_groups(codes, scales, x, total)
            codes, scales = next_codes, next_scales
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
    IS_BF16: tl.constexpr,
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
            False,
            IS_BF16,
            STAGES,
            UNROLL,
        )
        gate, up = tl.split(tl.reshape(sums, [ROWS, 2]))
        units = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        activated = _silu(gate * gate_scale) * (up * up_scale)
        # Planar and raised: what the down kernel reads.
        places = (units % 16) * (INTERMEDIATE // 16) + units // 16
        tl.store(activated_ptr + route * INTERMEDIATE + places, activated * _RAISED, mask=units < INTERMEDIATE)


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
            True,
            False,
            STAGES,
            UNROLL,
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
class RouteSelection:
    """Which routes a call computes: those whose entry in `kinds` (integers [rows, k]) equals `wanted`."""

    kinds: Tensor
    wanted: int


class ExpertCompute:
    """The experts of one record layout. Raises CheckpointError for NVFP4 widths that are no multiple of 16."""

    def __init__(self, layout: RecordLayout, tuning: Tuning = DEFAULT_TUNING) -> None:
        if layout.expert_format == "nvfp4" and (layout.hidden % NVFP4_GROUP or layout.intermediate % NVFP4_GROUP):
            raise CheckpointError(
                f"NVFP4 experts of {layout.hidden} x {layout.intermediate} don't run on a GPU: both widths must be "
                "multiples of 16; convert the experts to bf16"
            )
        self._layout = layout
        self._tuning = tuning

    def decode(
        self,
        pool: Tensor,
        slots: Tensor,
        hidden: Tensor,
        selection: RouteSelection | None = None,
        output: Tensor | None = None,
    ) -> Tensor:
        """fp32 [rows, k, hidden] of hidden [rows, hidden] and integer slots [rows, k].

        A route whose slot is negative, or that is not selected, is not computed: its row of `output` stays as it is.
        pool is uint8 [slots, at least record_bytes], each slot 16-byte aligned and contiguous.
        """
        layout = self._layout
        if output is None:
            output = torch.empty(*slots.shape, layout.hidden, dtype=torch.float32, device=hidden.device)
        activated = torch.empty(slots.numel(), layout.intermediate, dtype=torch.float32, device=hidden.device)
        kinds = slots if selection is None else selection.kinds
        wanted = -1 if selection is None else selection.wanted
        launch = self._launch_nvfp4 if layout.expert_format == "nvfp4" else self._launch_wide
        launch(pool, slots, kinds, wanted, hidden, activated, output)
        return output

    def _launch_nvfp4(
        self, pool: Tensor, slots: Tensor, kinds: Tensor, wanted: int, hidden: Tensor, activated: Tensor, output: Tensor
    ) -> None:
        layout = self._layout
        cut, tile = self._tuning.gate_up, _tile_of(layout.hidden // NVFP4_GROUP)
        rows = _rows_of(cut, tile)
        _nvfp4_gate_up_kernel[(triton.cdiv(layout.intermediate, rows), slots.numel())](
            pool,
            slots,
            kinds,
            hidden,
            activated,
            pool.stride(0),
            slots.shape[1],
            layout.hidden,
            layout.intermediate,
            layout.gate_up_offset,
            layout.gate_up_scale_offset,
            layout.global_scale_offset,
            wanted,
            rows,
            tile,
            cut.stages,
            cut.unroll,
            hidden.dtype == torch.bfloat16,
            num_warps=cut.num_warps,
        )
        cut, tile = self._tuning.down, _tile_of(layout.intermediate // NVFP4_GROUP)
        rows = _rows_of(cut, tile)
        _nvfp4_down_kernel[(triton.cdiv(layout.hidden, rows), slots.numel())](
            pool,
            slots,
            kinds,
            activated,
            output,
            pool.stride(0),
            layout.hidden,
            layout.intermediate,
            layout.down_offset,
            layout.down_scale_offset,
            layout.global_scale_offset,
            wanted,
            rows,
            tile,
            cut.stages,
            cut.unroll,
            num_warps=cut.num_warps,
        )

    def _launch_wide(
        self, pool: Tensor, slots: Tensor, kinds: Tensor, wanted: int, hidden: Tensor, activated: Tensor, output: Tensor
    ) -> None:
        layout = self._layout
        stored_type = _PLAIN_TYPES.get(layout.expert_format, tl.int8)
        block = FP8_BLOCK if layout.expert_format == "fp8" else 0
        _wide_gate_up_kernel[(triton.cdiv(layout.intermediate, _WIDE_ROWS), slots.numel())](
            pool,
            slots,
            kinds,
            hidden,
            activated,
            pool.stride(0),
            slots.shape[1],
            layout.hidden,
            layout.intermediate,
            layout.gate_up_offset,
            layout.gate_up_scale_offset,
            wanted,
            _WIDE_ROWS,
            _WIDE_TILE,
            stored_type,
            block,
        )
        _wide_down_kernel[(triton.cdiv(layout.hidden, _WIDE_ROWS), slots.numel())](
            pool,
            slots,
            kinds,
            activated,
            output,
            pool.stride(0),
            layout.hidden,
            layout.intermediate,
            layout.down_offset,
            layout.down_scale_offset,
            wanted,
            _WIDE_ROWS,
            _WIDE_TILE,
            stored_type,
            block,
        )
