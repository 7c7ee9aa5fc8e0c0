"""Products of 1 to 4 rows with dense weights, near the speed at which the weights can be read.

A row of fp32 activations is three bf16 numbers per element, and so three lines of a 16-line tensor-core tile: products
with bf16 and e4m3 weights are exact and are added in fp32. fp32 weights are multiplied in fp32.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.torch_ops.linear import Convolved
from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.narrow_floats import E4M3_INPUT_SCALE, E4M3_SCALE, e4m3_tiny, e4m3_tiny_halves
from runtime.kernels.triton_ops.rows import (
    MAX_ROWS,
    check_aligned,
    check_rows,
    dot,
    is_last_arrival,
    row_kernel,
    row_sum,
    sigmoid,
    silu,
    split_part,
)
from runtime.kernels.triton_ops.workspace import arrival_counters

TILE_LINES = 16
"""Lines of the narrowest tensor-core tile."""
TILES_AHEAD = 2
"""Of weights, that a block reads while it waits for the launch before; one more, if that is all. Changes time, never
bits."""


@dataclass(frozen=True)
class DenseTiling:
    """How a product [N] = W[N, K] x is cut up. It decides the order of sums: shape and type alone choose it."""

    block_n: int
    block_k: int
    num_splits: int
    """Blocks that share a tile's K, added in order by the last to arrive."""
    num_warps: int = 4
    num_stages: int = 4

    @classmethod
    def of(cls, num_outputs: int, width: int, dtype: torch.dtype) -> "DenseTiling":
        """Raises ValueError for widths that are not multiples of 16."""
        # Inputs are split, and e4m3 is decoded, on the way: larger tiles do that for more outputs at once, as long as
        # there are enough of them.
        is_e4m3, block_k = dtype == torch.uint8, widest_step(width, dtype)
        num_steps = width // block_k
        if is_e4m3:
            block_n, blocks_wanted = (128, 200) if num_outputs >= 8192 else (64, 512)
        else:
            block_n, blocks_wanted = (64, 320) if num_outputs < 8192 and num_steps >= 32 else (32, 320)
        num_tiles = triton.cdiv(num_outputs, block_n)
        num_splits = 1
        while num_splits < 16 and num_tiles * num_splits < blocks_wanted and num_steps >= max(8, 3 * num_splits):
            num_splits *= 2
        return cls(block_n, block_k, num_splits, num_stages={128: 4, 64: 5 if is_e4m3 else 3, 32: 4}[block_n])


def widest_step(width: int, dtype: torch.dtype) -> int:
    """Inputs of one step: the largest power of two that divides the width, up to what suits the weight's type.

    Raises ValueError for widths that are not multiples of 16.
    """
    if width % 16:
        raise ValueError(f"dense weights need a width that is a multiple of 16, not {width}")
    return min({torch.uint8: 128, torch.bfloat16: 128, torch.float32: 64}[dtype], width & -width)


def _exact_step(block_k: int, exact: Tensor) -> int:
    """Inputs of one step beside e4m3 weights: no more bytes than theirs, so that blocks need no more shared memory."""
    return min(max(16, block_k // exact.element_size()), widest_step(exact.shape[1], exact.dtype))


def linear(
    x: Tensor,
    weight: Tensor,
    scale: Tensor | None = None,
    exact: Tensor | None = None,
    output: Tensor | None = None,
    tiling: DenseTiling | None = None,
    is_fork: bool = False,
) -> Tensor:
    """x @ weight^T, times `scale` [O] by output. x fp32 [N, K], N <= 4; weight bf16, fp32, or e4m3 bytes uint8 [O, K].

    `exact` [P, K], bf16 or fp32, gives P outputs after those. Returns fp32 [N, O + P], or `output`, whose rows may be
    longer. `is_fork`: it begins a branch, and so waits for another stream as well. x of e4m3 is below 2**63. Raises
    ValueError for shapes and alignments that the kernel does not take.
    """
    return _launch(x, None, weight, scale, exact, output, tiling, is_fork=is_fork)


def silu_linear(gate_up: Tensor, is_gated: bool, weight: Tensor, scale: Tensor | None = None) -> Tensor:
    """`linear` of `silu_product(gate_up, K, is_gated)`, in one launch. gate_up fp32 [N, >= 2K], rows contiguous."""
    return _launch(gate_up, None, weight, scale, None, activates=2 if is_gated else 1)


def linear_conv(
    x: Tensor, convolved: Convolved, weight: Tensor, scale: Tensor | None = None, exact: Tensor | None = None
) -> Tensor:
    """`linear`, and `conv_rows` of dilation 1 on its first outputs, in one launch; the histories move on.

    They are read while the launch before may still run, so it must be another than the last to write them.
    """
    return _launch(x, convolved, weight, scale, exact)


def _launch(
    x: Tensor, convolved: Convolved | None, weight: Tensor, scale: Tensor | None, exact: Tensor | None,
    output: Tensor | None = None, tiling: DenseTiling | None = None, activates: int = 0, is_fork: bool = False,
) -> Tensor:  # fmt: skip
    num_rows, width = x.shape[0], weight.shape[1]
    num_outputs, num_exact = weight.shape[0], 0 if exact is None else exact.shape[0]
    check_rows(num_rows)
    check_aligned(weight=weight, **({} if activates else {"x": x}), **({} if exact is None else {"exact": exact}))
    tiling = tiling or DenseTiling.of(num_outputs, width, weight.dtype)
    num_tiles = triton.cdiv(num_outputs, tiling.block_n) + triton.cdiv(num_exact, tiling.block_n)
    if output is None:
        output = torch.empty(num_rows, num_outputs + num_exact, dtype=torch.float32, device=x.device)
    # Neither is used by blocks that share nothing.
    partial = counters = output
    if tiling.num_splits > 1:
        counters = arrival_counters(x.device, num_tiles)
        shape = (num_tiles, tiling.num_splits, MAX_ROWS, tiling.block_n)
        partial = torch.empty(shape, dtype=torch.float32, device=x.device)
    # None of them is used where nothing is convolved.
    pool, state_rows, taps = convolved or (output, counters, output)
    _linear_kernel[(num_tiles, tiling.num_splits)](
        x, x.stride(0), weight, scale, exact, output, output.stride(0), partial, counters, pool, pool.stride(0),
        state_rows, taps, num_rows,
        num_outputs=num_outputs, num_exact=num_exact, width=width, has_scale=scale is not None,
        block_n=tiling.block_n, block_k=tiling.block_k,
        exact_block_k=1 if exact is None else _exact_step(tiling.block_k, exact),
        num_splits=tiling.num_splits, num_ahead=_tiles_ahead(width // tiling.block_k, tiling.num_splits),
        num_channels=0 if convolved is None else taps.shape[1], num_taps=taps.shape[0],
        activates=activates, max_rows=MAX_ROWS, num_warps=tiling.num_warps, num_stages=tiling.num_stages,
        # Nobody waits for the end of a shared expert, which is the only one to activate.
        **({} if is_fork or activates else begins_early(x.device)),
    )  # fmt: skip
    return output


def _tiles_ahead(num_steps: int, num_splits: int) -> int:
    """Tiles that a block reads before it waits; some blocks may have one less in all."""
    most = triton.cdiv(num_steps, num_splits)
    return most if most <= TILES_AHEAD + 1 else min(TILES_AHEAD, num_steps // num_splits)


def _name_of(specialization: Any) -> str:
    """A profiler's trace tells the end of a shared expert, and with it when it ends, from other products."""
    return "_silu_linear_kernel" if specialization.constants["activates"] else "_linear_kernel"


@partial(row_kernel, name_of=_name_of)
def _linear_kernel(
    x, x_stride, weight, scale, exact, output, output_stride, partial, counters, pool, pool_stride, state_rows, taps,
    num_rows, num_outputs: tl.constexpr, num_exact: tl.constexpr, width: tl.constexpr, has_scale: tl.constexpr,
    block_n: tl.constexpr, block_k: tl.constexpr, exact_block_k: tl.constexpr, num_splits: tl.constexpr,
    num_ahead: tl.constexpr, num_channels: tl.constexpr, num_taps: tl.constexpr, activates: tl.constexpr,
    max_rows: tl.constexpr,
):  # fmt: skip
    """Tiles of `weight` come first, then those of `exact`. The first outputs, `num_channels`, are convolved."""
    tile, split = tl.program_id(0), tl.program_id(1)
    scaled_tiles: tl.constexpr = (num_outputs + block_n - 1) // block_n
    lanes = tl.arange(0, block_n)
    outputs = tile * block_n + lanes
    memory = ()
    if num_channels > 0:
        memory = _memory(outputs, pool, pool_stride, state_rows, taps, num_rows, num_channels, max_rows)
    if num_exact == 0 or tile < scaled_tiles:
        total, held = _share(
            x, x_stride, num_rows, weight, outputs, num_outputs, width, split, num_splits, block_n, block_k, num_ahead,
            max_rows, activates, memory, num_channels, num_taps,
        )  # fmt: skip
    else:
        total, held = _share(
            x, x_stride, num_rows, exact, (tile - scaled_tiles) * block_n + lanes, num_exact, width, split, num_splits,
            block_n, exact_block_k, num_ahead, max_rows, activates, memory, num_channels, num_taps,
        )  # fmt: skip
    if num_splits > 1:
        places = tl.arange(0, max_rows)[:, None] * block_n + lanes[None, :]
        partials = partial + tile * (num_splits * max_rows * block_n) + places
        tl.store(partials + split * (max_rows * block_n), total, cache_modifier=".cg")
        if not is_last_arrival(counters + tile, num_splits):
            return
        total = tl.zeros((max_rows, block_n), tl.float32)
        for earlier in tl.static_range(num_splits):
            total += tl.load(partials + earlier * (max_rows * block_n), cache_modifier=".cg")
    if has_scale:
        # Those of `exact` have none.
        total *= tl.load(scale + outputs, mask=outputs < num_outputs, other=1.0)[None, :]
    is_output = outputs < num_outputs
    if num_channels > 0:
        total = _convolved(total, outputs, memory, held, num_channels, num_taps)
    if num_exact > 0 and tile >= scaled_tiles:
        # Their places follow those of the weight, which need not fill its last tile.
        outputs += num_outputs - scaled_tiles * block_n
        is_output = outputs < num_outputs + num_exact
    rows = tl.arange(0, max_rows)[:, None]
    is_real = (rows < num_rows) & is_output[None, :]
    tl.store(output + rows * output_stride + outputs[None, :], total, mask=is_real)


@triton.jit
def _memory(
    channels, pool, pool_stride, state_rows, taps, num_rows, num_channels: tl.constexpr, max_rows: tl.constexpr
):  # fmt: skip
    """Where the channels' histories in pool [rows, taps - 1, channels] begin, where their taps do, and which are there:
    three of [max_rows, block_n]."""
    rows = tl.arange(0, max_rows)[:, None]
    is_held = (rows < num_rows) & (channels < num_channels)[None, :]
    history = pool + tl.load(state_rows + rows, mask=rows < num_rows, other=0) * pool_stride + channels[None, :]
    return history, tl.broadcast_to(taps + channels[None, :], history.shape), is_held


@triton.jit
def _remembered(memory, num_channels: tl.constexpr, num_taps: tl.constexpr):
    """What lies at `memory`, fp32 [max_rows, block_n] each: histories, oldest first, past the L1 cache, which may be
    older; then all taps."""
    history, factors, is_held = memory
    held = ()
    for tap in tl.static_range(num_taps - 1):
        held += (tl.load(history + tap * num_channels, mask=is_held, other=0.0, cache_modifier=".cg"),)  # type: ignore[assignment]
    for tap in tl.static_range(num_taps):
        held += (tl.load(factors + tap * num_channels, mask=is_held, other=0.0),)  # type: ignore[assignment]
    return held


@triton.jit
def _convolved(newest, channels, memory, held, num_channels: tl.constexpr, num_taps: tl.constexpr):
    """fp32 [max_rows, block_n]: those of the outputs that are channels through their taps, oldest first, and silu.
    `held` is what was `_remembered`; the histories move on."""
    history, _, is_held = memory
    # Loads nothing: it brings the products to the layout of loads, or all that was loaded would be brought to theirs.
    newest = tl.load(history, mask=is_held & (channels < 0)[None, :], other=newest)
    total = tl.zeros_like(newest)
    for tap in tl.static_range(num_taps - 1):
        total = tl.fma(held[tap], held[num_taps - 1 + tap], total)
        if tap > 0:
            tl.store(history + (tap - 1) * num_channels, held[tap], mask=is_held)
    if num_taps > 1:
        tl.store(history + (num_taps - 2) * num_channels, newest, mask=is_held)
    total = tl.fma(newest, held[2 * num_taps - 2], total)
    return tl.where((channels < num_channels)[None, :], silu(total), newest)


@triton.jit
def _share(
    x, x_stride, num_rows, weight, outputs, num_outputs: tl.constexpr, width: tl.constexpr, split,
    num_splits: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, num_ahead: tl.constexpr,
    max_rows: tl.constexpr, activates: tl.constexpr, memory, num_channels: tl.constexpr, num_taps: tl.constexpr,
):  # fmt: skip
    """fp32 [max_rows, block_n]: what one split's inputs, for which it waits, add to `outputs`; then what is
    `_remembered`, read before."""
    steps: tl.constexpr = width // block_k
    begin = split * steps // num_splits * block_k
    end = (split + 1) * steps // num_splits * block_k
    rows = tl.minimum(outputs, num_outputs - 1).to(tl.int64)
    if weight.dtype.element_ty == tl.uint8 and block_k >= 32:
        # Words of four.
        weight_rows = weight.to(tl.pointer_type(tl.int32)) + rows * (width // 4)
    else:
        weight_rows = weight + rows * width
    is_all: tl.constexpr = num_ahead * num_splits >= steps
    tiles = _load_last_tiles(weight_rows, end, block_k, num_ahead, begin)
    held = ()
    if num_channels > 0:
        held = _remembered(memory, num_channels, num_taps)
    await_last_launch()
    sums = _multiply_rows(
        x, x_stride, num_rows, weight_rows, tiles, begin, end, block_n, block_k, num_ahead, max_rows, activates, width,
        is_all,
    )  # fmt: skip
    return sums, held


@triton.jit
def _inputs(
    x, x_stride, num_rows, places, max_rows: tl.constexpr, activates: tl.constexpr, width: tl.constexpr,
    alignment: tl.constexpr = 16,
):  # fmt: skip
    """fp32 [max_rows, places] of x; with `activates` 1 through silu and times what lies `width` later, with 2 times the
    sigmoid of what comes after both as well. `alignment` 1 leaves them where a thread loads them: what is loaded wide
    goes through shared memory at once, and the next load waits for that."""
    rows = tl.arange(0, max_rows)[:, None]
    pointers = x + rows * x_stride + places[None, :]
    if activates == 0:
        return tl.load(tl.multiple_of(pointers, (1, alignment)), mask=rows < num_rows, other=0.0)
    gate = tl.load(pointers, mask=rows < num_rows, other=0.0)
    values = silu(gate) * tl.load(pointers + width, mask=rows < num_rows, other=0.0)
    if activates == 2:
        values *= sigmoid(tl.load(x + rows * x_stride + 2 * width, mask=rows < num_rows, other=0.0))
    return values


@triton.jit
def _load_tile(weight_rows, step, block_k: tl.constexpr):
    """The weights of inputs step ... step + block_k - 1; of int32 words each holds four."""
    num_packed: tl.constexpr = 4 if weight_rows.dtype.element_ty == tl.int32 else 1
    places = step // num_packed + tl.arange(0, block_k // num_packed)
    pointers = tl.multiple_of(weight_rows[:, None] + places[None, :], (1, 16))
    return tl.load(pointers, eviction_policy="evict_first")


@triton.jit
def _load_last_tiles(weight_rows, end, block_k: tl.constexpr, num_ahead: tl.constexpr, begin=0):
    """The last tiles before `end`, under way: for before a wait, since weights are there. `_multiply_rows` ends with
    them. If there is one less since `begin`, the first is there twice."""
    tiles = ()
    for tile in tl.static_range(num_ahead):
        step = tl.maximum(end - (num_ahead - tile) * block_k, begin)
        tiles += (_load_tile(weight_rows, step, block_k),)  # type: ignore[assignment]
    return tiles


@triton.jit
def _untouched(tile, num_rows):
    """The same tile; but the compiler does not know, and so leaves it in registers until here. It would wait for every
    tile right after its load, to bring it to shared memory."""
    nothing = tl.minimum(num_rows, 0)
    if tile.dtype == tl.bfloat16:
        tile = (tile.to(tl.int16, bitcast=True) | nothing.to(tl.int16)).to(tl.bfloat16, bitcast=True)
    elif tile.dtype == tl.float32:
        tile = (tile.to(tl.int32, bitcast=True) | nothing).to(tl.float32, bitcast=True)
    # Bytes are decoded first.
    return tile


@triton.jit
def _add_step(total, values, weights, block_k: tl.constexpr, max_rows: tl.constexpr):
    """total [16, block_n] plus the inputs of a step, fp32 [max_rows, block_k], times the weights of its tile."""
    if weights.dtype == tl.int32:
        even, odd = e4m3_tiny_halves(weights)
        values *= E4M3_INPUT_SCALE
        even_values, odd_values = tl.split(tl.reshape(values, (max_rows, block_k // 2, 2)))
        total = _multiply_lines(even_values, even, total, block_k // 2, max_rows)
        total = _multiply_lines(odd_values, odd, total, block_k // 2, max_rows)
    elif weights.dtype == tl.uint8:
        # The weights' bits read as tiny numbers, whose products shall not be subnormal.
        tiny = e4m3_tiny(weights.to(tl.int8, bitcast=True))
        total = _multiply_lines(values * E4M3_INPUT_SCALE, tiny, total, block_k, max_rows)
    else:
        total = _multiply_lines(values, weights, total, block_k, max_rows)
    return total


@triton.jit
def _multiply_rows(
    x, x_stride, num_rows, weight_rows, last_tiles, begin, end,
    block_n: tl.constexpr, block_k: tl.constexpr, num_ahead: tl.constexpr, max_rows: tl.constexpr,
    activates: tl.constexpr, width: tl.constexpr = 0, is_all: tl.constexpr = False,
):  # fmt: skip
    """fp32 [max_rows, block_n]: x[:, begin:end], as `_inputs` gives it, times the weights at `weight_rows`.

    Steps of block_k in rising order; begin and end are multiples of it. The last ones are `_load_last_tiles`; with
    `is_all` there are no others, and a first that is there twice meets zeros.
    """
    is_e4m3: tl.constexpr = weight_rows.dtype.element_ty == tl.uint8 or weight_rows.dtype.element_ty == tl.int32
    total = tl.zeros((16, block_n), tl.float32)
    last_values = ()
    for tile in tl.static_range(num_ahead):
        first = end - (num_ahead - tile) * block_k
        num_real = tl.where(first >= begin, num_rows, 0) if is_all else num_rows
        values = _inputs(x, x_stride, num_real, first + tl.arange(0, block_k), max_rows, activates, width, 1)
        last_values += (values,)  # type: ignore[assignment]
    if not is_all:
        for step in range(begin, end - num_ahead * block_k, block_k):
            weights = _load_tile(weight_rows, step, block_k)
            places = step + tl.arange(0, block_k)
            values = _inputs(x, x_stride, num_rows, places, max_rows, activates, width)
            total = _add_step(total, values, weights, block_k, max_rows)
    for tile in tl.static_range(num_ahead):
        total = _add_step(total, last_values[tile], _untouched(last_tiles[tile], num_rows), block_k, max_rows)
    sums = row_sum(tl.reshape(total, (16 // max_rows, max_rows, block_n)), axis=0)
    return sums * (E4M3_SCALE / E4M3_INPUT_SCALE) if is_e4m3 else sums


@triton.jit
def _multiply_lines(values, weights, total, block_k: tl.constexpr, max_rows: tl.constexpr):
    """total [16, block_n] plus values fp32 [max_rows, block_k] @ weights^T [block_n, block_k], bf16 or fp32.

    Lines max_rows * p + r hold part p of row r; with fp32 weights part 0 is the row itself and the others are zero.
    """
    num_parts: tl.constexpr = 16 // max_rows
    part = tl.arange(0, num_parts)[:, None, None]
    lines = tl.broadcast_to(values[None], (num_parts, max_rows, block_k))
    is_wide: tl.constexpr = weights.dtype == tl.float32
    lines = tl.where(part == 0, lines, 0.0) if is_wide else split_part(lines, part, tl.bfloat16)
    return dot(tl.reshape(lines, (16, block_k)), weights.trans(), total)
