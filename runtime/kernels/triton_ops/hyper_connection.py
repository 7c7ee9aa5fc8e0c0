"""Gated residual over S streams, in two launches: the low-rank product, which injects and norms what it reads, and the
mix, which does so once more and keeps the residual that came of it.

A stream's norm is one factor, so the product takes the values before it and multiplies each stream's sum by it.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.dense import load_last_tiles, multiply_lines, multiply_rows, untouched
from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.rows import (
    MAX_ROWS,
    check_aligned,
    check_rows,
    is_last_arrival,
    row_kernel,
    row_sum,
    sigmoid,
)
from runtime.kernels.triton_ops.workspace import arrival_counters

TILES_AHEAD = 6
"""Of weights, at most, that a block reads while it waits for the launch before: all it has, at usual widths."""


@dataclass(frozen=True)
class MixTiling:
    """How the two launches are cut up, by the shape and type of the weights alone, as it decides the order of sums."""

    down_n: int
    down_k: int
    splits_per_stream: int
    mix_n: int
    """Hidden dims of one block of the mix, which reads that many rows of `up` per stream."""
    mix_k: int
    down_warps: int = 4
    mix_warps: int = 4
    down_stages: int = 4
    mix_stages: int = 4

    @classmethod
    def of(cls, width: int, rank: int, dtype: torch.dtype) -> "MixTiling":
        """`width` of one stream. Raises ValueError for a rank that is not a multiple of 16."""
        if rank % 16:
            raise ValueError(f"streams are mixed through a multiple of 16 dims, not {rank}")
        # One step to a block, where they are wide enough: its weights are all on their way at once.
        down_k = max(16, min(64 if dtype == torch.float32 else 512, width & -width))
        splits = num_steps = triton.cdiv(width, down_k)
        if num_steps > 8:
            splits = 4
        return cls(32, down_k, splits, 16, min(64, rank & -rank))


def mix_streams(
    residual: Tensor, scale: Tensor, down: Tensor, up: Tensor, num_streams: int, eps: float,
    tiling: MixTiling | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The twin of `torch_ops.hyper_connection.mix_streams`; residual and results fp32, down and up bf16 or fp32."""
    return _mix(residual, None, None, scale, down, up, num_streams, eps, tiling)


def inject_output(residual: Tensor, output: Tensor, inject: Tensor) -> None:
    """In place: stream s of residual fp32 [N, S*H] += inject[:, s] * output; output [N, H], inject [N, S] fp32."""
    num_rows, num_streams = inject.shape
    width = output.shape[1]
    block = min(1024, triton.next_power_of_2(width))
    _inject_kernel[(num_rows, num_streams, triton.cdiv(width, block))](
        residual, residual.stride(0), output, output.stride(0), inject, inject.stride(0),
        width=width, block=block, num_warps=4,
    )  # fmt: skip


def inject_and_mix(
    residual: Tensor, output: Tensor, inject: Tensor, scale: Tensor, down: Tensor, up: Tensor, num_streams: int,
    eps: float, tiling: MixTiling | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`inject_output` and, on its result, `mix_streams`: the same bits in one launch less."""
    return _mix(residual, output, inject, scale, down, up, num_streams, eps, tiling)


def _mix(
    residual: Tensor, output: Tensor | None, inject: Tensor | None, scale: Tensor, down: Tensor, up: Tensor,
    num_streams: int, eps: float, tiling: MixTiling | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    num_rows, width = residual.shape[0], residual.shape[1] // num_streams
    num_outputs, rank = down.shape[0], up.shape[1]
    check_rows(num_rows)
    check_aligned(residual=residual, down=down, up=up, **({} if output is None else {"output": output}))
    tiling = tiling or MixTiling.of(width, rank, down.dtype)
    gates = torch.empty(num_rows, triton.cdiv(num_outputs, 4) * 4, dtype=torch.float32, device=residual.device)
    factors = torch.empty(MAX_ROWS, num_streams, dtype=torch.float32, device=residual.device)
    num_tiles, num_splits = triton.cdiv(num_outputs, tiling.down_n), num_streams * tiling.splits_per_stream
    partial = torch.empty(
        num_tiles, num_splits, MAX_ROWS, tiling.down_n + 1, dtype=torch.float32, device=residual.device
    )
    streams = (
        residual, residual.stride(0), output, 0 if output is None else output.stride(0), inject,
        0 if inject is None else inject.stride(0), scale,
    )  # fmt: skip
    _low_rank_kernel[(num_tiles, num_splits)](
        *streams, down, gates, gates.stride(0), factors, partial, arrival_counters(residual.device, num_tiles),
        num_rows, eps, injects=output is not None, num_streams=num_streams, width=width, num_outputs=num_outputs,
        block_n=tiling.down_n, block_k=tiling.down_k, splits_per_stream=tiling.splits_per_stream,
        most_ahead=TILES_AHEAD, max_rows=MAX_ROWS,
        num_warps=tiling.down_warps, num_stages=tiling.down_stages, **begins_early(residual.device),
    )  # fmt: skip
    mixed = torch.empty(num_rows, width, dtype=torch.float32, device=residual.device)
    own_inject = torch.empty(num_rows, num_outputs - rank, dtype=torch.float32, device=residual.device)
    _mix_kernel[(triton.cdiv(width, tiling.mix_n),)](
        *streams, gates, gates.stride(0), factors, up, mixed, own_inject, num_rows, injects=output is not None,
        num_streams=num_streams, stream_tile=triton.next_power_of_2(num_streams), width=width, rank=rank,
        num_injects=num_outputs - rank, inject_tile=triton.next_power_of_2(max(1, num_outputs - rank)),
        block_n=tiling.mix_n, block_k=tiling.mix_k, most_ahead=TILES_AHEAD, max_rows=MAX_ROWS,
        num_warps=tiling.mix_warps, num_stages=tiling.mix_stages, **begins_early(residual.device),
    )  # fmt: skip
    return mixed, own_inject


@row_kernel
def _inject_kernel(
    residual, residual_stride, output, output_stride, inject, inject_stride, width: tl.constexpr, block: tl.constexpr
):
    row, stream = tl.program_id(0), tl.program_id(1)
    places = tl.program_id(2) * block + tl.arange(0, block)
    is_real = places < width
    target = residual + row * residual_stride + stream * width + places
    added = tl.load(output + row * output_stride + places, mask=is_real, other=0.0).to(tl.float32)
    weight = tl.load(inject + row * inject_stride + stream)
    tl.store(target, tl.fma(added, weight, tl.load(target, mask=is_real, other=0.0)), mask=is_real)


@triton.jit
def _true_places(places, width: tl.constexpr, block_k: tl.constexpr):
    """Which exist, [1, block_k]: always true, and known to be, where steps divide the width."""
    return (places < width)[None, :] if width % block_k else tl.full((1, block_k), True, tl.int1)


@triton.jit
def _down_tile(weight_rows, places, is_place, alignment: tl.constexpr):
    """Weights [block_n, block_k] of a step."""
    pointers = tl.multiple_of(weight_rows[:, None] + places[None, :], (1, alignment))
    return tl.load(pointers, mask=is_place, other=0.0, eviction_policy="evict_first")


@triton.jit
def _injected(
    residual, residual_stride, output, output_stride, weight, places, num_rows, injects: tl.constexpr,
    width: tl.constexpr, block_k: tl.constexpr, max_rows: tl.constexpr, alignment: tl.constexpr,
):  # fmt: skip
    """fp32 [max_rows, block_k] of one stream; with `injects` plus `weight` [max_rows, 1] times the output."""
    rows = tl.arange(0, max_rows)[:, None]
    is_value = (rows < num_rows) & _true_places(places, width, block_k)
    pointers = tl.multiple_of(residual + rows * residual_stride + places[None, :], (1, alignment))
    values = tl.load(pointers, mask=is_value, other=0.0)
    if injects:
        pointers = tl.multiple_of(output + rows * output_stride + places[None, :], (1, alignment))
        added = tl.load(pointers, mask=is_value, other=0.0).to(tl.float32)
        values = tl.fma(added, tl.broadcast_to(weight, (max_rows, block_k)), values)
    return values


@row_kernel
def _low_rank_kernel(
    residual, residual_stride, output, output_stride, inject, inject_stride, scale, down, gates, gates_stride, factors,
    partial, counters, num_rows, eps, injects: tl.constexpr, num_streams: tl.constexpr, width: tl.constexpr,
    num_outputs: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, splits_per_stream: tl.constexpr,
    most_ahead: tl.constexpr, max_rows: tl.constexpr,
):  # fmt: skip
    """gates [N, >= outputs] and each stream's norm, factors [rows, streams]. A block has a part of one stream.

    partial [tiles, splits, rows, block_n + 1]: sums of products, then of the values' squares.
    """
    tile, split = tl.program_id(0), tl.program_id(1)
    stream = split // splits_per_stream
    share = split % splits_per_stream
    steps: tl.constexpr = (width + block_k - 1) // block_k
    # Of bytes: what wide loads need, and what the starts of all streams have if one does.
    alignment: tl.constexpr = 16 if width % 8 == 0 else 1
    rows, lanes = tl.arange(0, max_rows), tl.arange(0, block_n)
    outputs = tile * block_n + lanes
    weight_rows = down + tl.minimum(outputs, num_outputs - 1).to(tl.int64) * (num_streams * width) + stream * width
    begin, end = share * steps // splits_per_stream, (share + 1) * steps // splits_per_stream
    num_ahead: tl.constexpr = min(most_ahead, steps // splits_per_stream)
    tiles, scales = (), ()
    for early in tl.static_range(num_ahead):
        places = (end - num_ahead + early) * block_k + tl.arange(0, block_k)
        is_place = _true_places(places, width, block_k)
        tiles += (_down_tile(weight_rows, places, is_place, alignment),)  # type: ignore[assignment]
        scales += (tl.load(scale + stream * width + places[None, :], mask=is_place, other=0.0),)  # type: ignore[assignment]
    await_last_launch()
    weight = tl.zeros((max_rows, 1), tl.float32)
    if injects:
        weight = tl.load(inject + rows * inject_stride + stream, mask=rows < num_rows, other=0.0)[:, None]
    last_values = ()
    for early in tl.static_range(num_ahead):
        places = (end - num_ahead + early) * block_k + tl.arange(0, block_k)
        values = _injected(
            residual + stream * width, residual_stride, output, output_stride, weight, places, num_rows, injects,
            width, block_k, max_rows, 1,
        )  # fmt: skip
        last_values += (values,)  # type: ignore[assignment]
    total = tl.zeros((16, block_n), tl.float32)
    squares = tl.zeros((max_rows, block_k), tl.float32)
    # Known to be nothing where all tiles are there already.
    if num_ahead * splits_per_stream < steps:
        for step in range(begin, end - num_ahead):
            places = step * block_k + tl.arange(0, block_k)
            is_place = _true_places(places, width, block_k)
            weights = _down_tile(weight_rows, places, is_place, alignment)
            values = _injected(
                residual + stream * width, residual_stride, output, output_stride, weight, places, num_rows, injects,
                width, block_k, max_rows, alignment,
            )  # fmt: skip
            squares = tl.fma(values, values, squares)
            values *= tl.load(scale + stream * width + places[None, :], mask=is_place, other=0.0)
            total = multiply_lines(values, weights, total, block_k, max_rows)
    for early in tl.static_range(num_ahead):
        values, weights = last_values[early], untouched(tiles[early], num_rows)
        squares = tl.fma(values, values, squares)
        total = multiply_lines(values * scales[early], weights, total, block_k, max_rows)
    num_splits: tl.constexpr = num_streams * splits_per_stream
    products = row_sum(tl.reshape(total, (16 // max_rows, max_rows, block_n)), 0)
    line: tl.constexpr = block_n + 1
    own = partial + (tile * num_splits + split) * (max_rows * line)
    tl.store(own + rows[:, None] * line + lanes[None, :], products, cache_modifier=".cg")
    tl.store(own + rows * line + block_n, row_sum(squares, 1), cache_modifier=".cg")
    if not is_last_arrival(counters + tile, num_splits):
        return
    first = partial + tile * (num_splits * max_rows * line)
    # All under way before the first is added.
    parts = ()
    for part in tl.static_range(num_splits):
        found = first + part * (max_rows * line) + rows * line
        parts += (  # type: ignore[assignment]
            tl.load(found[:, None] + lanes[None, :], cache_modifier=".cg"),
            tl.load(found + block_n, cache_modifier=".cg"),
        )
    gate = tl.zeros((max_rows, block_n), tl.float32)
    for source in tl.static_range(num_streams):
        products = tl.zeros((max_rows, block_n), tl.float32)
        square = tl.zeros((max_rows,), tl.float32)
        for part in tl.static_range(splits_per_stream):
            products += parts[2 * (source * splits_per_stream + part)]
            square += parts[2 * (source * splits_per_stream + part) + 1]
        factor = tl.rsqrt(square / width + eps)
        gate += products * factor[:, None]
        if tile == 0:
            tl.store(factors + rows * num_streams + source, factor)
    places = gates + rows[:, None] * gates_stride + outputs[None, :]
    tl.store(places, gate, mask=(rows < num_rows)[:, None] & (outputs < num_outputs)[None, :])


@row_kernel
def _mix_kernel(
    residual, residual_stride, output, output_stride, inject, inject_stride, scale, gates, gates_stride, factors, up,
    mixed, own_inject, num_rows, injects: tl.constexpr, num_streams: tl.constexpr, stream_tile: tl.constexpr,
    width: tl.constexpr, rank: tl.constexpr, num_injects: tl.constexpr, inject_tile: tl.constexpr,
    block_n: tl.constexpr, block_k: tl.constexpr, most_ahead: tl.constexpr, max_rows: tl.constexpr,
):  # fmt: skip
    """gates [N, >= rank + injects]: the low-rank activations, then the raw inject gates.

    A block's tile holds its hidden dims of one stream after the other; with `injects` it keeps their new residual.
    """
    lines = tl.arange(0, stream_tile * block_n)
    stream, places = lines // block_n, tl.program_id(0) * block_n + lines % block_n
    is_line = (stream < num_streams) & (places < width)
    rows = tl.arange(0, max_rows)[:, None]
    is_value = (rows < num_rows) & is_line[None, :]
    targets = residual + rows * residual_stride + (stream * width + places)[None, :]
    # Under way while the weights are; a store of what comes of them would hold the weights up.
    values = tl.load(targets, mask=is_value, other=0.0)
    if injects:
        added = tl.load(output + rows * output_stride + places[None, :], mask=is_value, other=0.0)
        weight = tl.load(inject + rows * inject_stride + stream[None, :], mask=is_value, other=0.0)
    scales = tl.load(scale + stream * width + places, mask=is_line, other=0.0)[None, :]
    up_rows = up + tl.where(is_line, stream * width + places, 0) * rank
    num_ahead: tl.constexpr = min(most_ahead, rank // block_k)
    tiles = load_last_tiles(up_rows, rank, block_k, num_ahead)
    await_last_launch()
    factor = tl.load(factors + rows * num_streams + stream[None, :], mask=is_value, other=0.0)
    injects_at = tl.arange(0, inject_tile)[None, :]
    is_inject = (rows < num_rows) & (injects_at < num_injects)
    raw_inject = tl.load(gates + rows * gates_stride + rank + injects_at, mask=is_inject, other=0.0)
    products = multiply_rows(
        gates, gates_stride, num_rows, up_rows, tiles, 0, rank, stream_tile * block_n, block_k, num_ahead, max_rows,
        activates=True,
    )  # fmt: skip
    weights = sigmoid(products)
    if injects:
        values = tl.fma(added.to(tl.float32), weight, values)
        tl.store(targets, values, mask=is_value)
    weighted = tl.where(is_value, weights * (values * factor * scales), 0.0)
    total = row_sum(tl.reshape(weighted, (max_rows, stream_tile, block_n)), 1) / num_streams
    places = tl.program_id(0) * block_n + tl.arange(0, block_n)
    is_real = (rows < num_rows) & (places < width)[None, :]
    tl.store(mixed + rows * width + places[None, :], total, mask=is_real)
    targets = own_inject + rows * num_injects + injects_at
    tl.store(targets, 2.0 * sigmoid(raw_inject), mask=is_inject & (tl.program_id(0) == 0))
