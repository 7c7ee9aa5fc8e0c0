"""Sums of NVFP4 rows of a record times one vector, in fp32, for kernels over routed experts.

A tile is so many groups of 16 inputs of so many rows, a group to a lane. Tiles under way into registers are a tuple of
(codes, scales). A lane adds its products in rising order of input, tile by tile; then the lanes that share a row are
added. The tile's width follows from the matrix alone (`tile_groups`), and with it who adds what.
"""

import triton
import triton.language as tl

from runtime.kernels.triton_ops.narrow_floats import E4M3_SCALE, dot_word, e4m3_small

_LARGEST_TILE = 32
"""Groups: at 8 bytes of codes per lane a row takes a warp."""
_LANES_PER_WARP = 32

_RAISED = tl.constexpr(2.0**64)
"""Inputs are multiplied by it, since decoded e2m1 numbers are near 2^-126: products stay far from both ends of fp32."""
LOWERED = tl.constexpr(2.0**62)
"""What is then left of `E2M1_SCALE`: to be multiplied into the global scale."""


def tile_groups(num_groups: int) -> int:
    """Groups per tile: a divisor if it is not tiny, so that no lane idles; else all groups, masked."""
    divisor = num_groups & -num_groups
    tile = divisor if divisor >= 8 else triton.next_power_of_2(num_groups)
    return min(tile, _LARGEST_TILE)


def fill_warps(rows: int, tile: int, num_warps: int) -> int:
    """`rows`, or more where there are lanes for more: lanes of their own must not change who adds what."""
    return max(rows, _LANES_PER_WARP * num_warps // tile)


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
def load_tile(codes_ptr, scales_ptr, rows, is_row, tile: tl.constexpr, NUM_GROUPS: tl.constexpr, TILE: tl.constexpr):
    """Codes (int64) and scales (int8) of a tile, [rows, groups]; nothing past the last. rows are int64.

    What is masked is any number, as all codes and scales are finite. The hints give one group to a lane, whatever the
    tile's height: who adds what must not depend on that.
    """
    groups = tl.arange(0, TILE)
    places = tile * TILE + rows[:, None] * NUM_GROUPS + groups[None, :]
    mask = is_row[:, None] & (tile * TILE + groups < NUM_GROUPS)[None, :]
    codes = tl.load(tl.multiple_of(codes_ptr + places, [8, 8]), mask=mask)
    return codes, tl.load(tl.multiple_of(scales_ptr + places, [1, 1]), mask=mask)


@triton.jit
def load_first_tiles(
    codes_ptr, scales_ptr, rows, is_row, AHEAD: tl.constexpr, NUM_GROUPS: tl.constexpr, TILE: tl.constexpr
):
    """The tiles that `sum_tiles` begins with, under way."""
    tiles = ()
    for tile in tl.static_range(min(AHEAD, (NUM_GROUPS + TILE - 1) // TILE)):
        tiles += (load_tile(codes_ptr, scales_ptr, rows, is_row, tile, NUM_GROUPS, TILE),)  # type: ignore[assignment]
    return tiles


@triton.jit
def sum_tiles(
    first_tiles,
    codes_ptr,
    scales_ptr,
    x_ptr,
    rows,
    is_row,
    AHEAD: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """fp32 [ROWS], short of the global scale and of `LOWERED`: rows times x."""
    NUM_TILES: tl.constexpr = (NUM_GROUPS + TILE - 1) // TILE
    groups = tl.arange(0, TILE)
    tiles = first_tiles
    total = tl.zeros([ROWS, TILE], tl.float32)
    inputs = _load_inputs(x_ptr, groups, groups < NUM_GROUPS)
    for tile in tl.static_range(NUM_TILES):
        codes, scales = tiles[0]
        tiles = tiles[1:]
        if tile + AHEAD < NUM_TILES:
            tiles += (load_tile(codes_ptr, scales_ptr, rows, is_row, tile + AHEAD, NUM_GROUPS, TILE),)
        x = _hand_out(inputs, TILE)
        if tile + 1 < NUM_TILES:
            groups += TILE
            inputs = _load_inputs(x_ptr, groups, groups < NUM_GROUPS)
        products = dot_word(codes.to(tl.int32), x, 0, tl.zeros_like(total))
        products = dot_word((codes >> 32).to(tl.int32), x, 8, products)
        total = tl.fma(products, e4m3_small(scales) * E4M3_SCALE, total)
    return tl.sum(total, 1)
