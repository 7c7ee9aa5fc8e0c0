"""Gated residual over S streams, in two launches: the low-rank product, which injects and norms what it reads, and the
mix, which does so once more and keeps the residual that came of it.

A block has one row, and all its weights in registers before it waits for the launch before. The product leaves one sum
for each stream, which every block of the mix adds up for itself: nobody waits for a last block. A stream's norm is one
factor, so the product takes the values before it and multiplies the stream's sum by it.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.rows import check_aligned, check_rows, row_kernel, row_sum, sigmoid, silu

_BLOCK_BYTES = 64 << 10
"""Of weights, at most, in registers: 512 to a thread. What lies beyond a width that is no power of two counts, too, but
takes none."""


@dataclass(frozen=True)
class MixTiling:
    """How the two launches are cut up, by the shape and type of the weights alone, as it decides the order of sums."""

    down_n: int
    """Outputs of one block of the product, which reads all of one stream."""
    down_k: int
    """Places of a stream that lie side by side in a block's threads; divides the width."""
    mix_n: int
    """Hidden dims of one block of the mix, which reads that many rows of `up` per stream."""
    mix_k: int
    """The same of the rank."""
    down_warps: int = 4
    mix_warps: int = 4

    @classmethod
    def of(cls, num_streams: int, width: int, rank: int, dtype: torch.dtype) -> "MixTiling":
        """`width` of one stream. Raises ValueError for a rank that is not a multiple of 16."""
        if rank % 16:
            raise ValueError(f"streams are mixed through a multiple of 16 dims, not {rank}")
        num_weights = _BLOCK_BYTES // dtype.itemsize
        down_n = _power_below(num_weights // triton.next_power_of_2(width), 8)
        mix_n = _power_below(num_weights // triton.next_power_of_2(num_streams) // triton.next_power_of_2(rank), 16)
        return cls(down_n, min(512, width & -width), mix_n, min(64, rank & -rank))


def _power_below(number: int, most: int) -> int:
    """The largest power of two up to `number` and `most`; 1 at least."""
    return 1 << (max(1, min(number, most)).bit_length() - 1)


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
    tiling = tiling or MixTiling.of(num_streams, width, rank, down.dtype)
    # Rows of sums begin where wide loads may.
    gates_width = triton.cdiv(num_outputs, 4) * 4
    gates = torch.empty(num_rows, num_streams, gates_width, dtype=torch.float32, device=residual.device)
    factors = torch.empty(num_rows, num_streams, dtype=torch.float32, device=residual.device)
    streams = (
        residual, residual.stride(0), output, 0 if output is None else output.stride(0), inject,
        0 if inject is None else inject.stride(0), scale,
    )  # fmt: skip
    _low_rank_kernel[(triton.cdiv(num_outputs, tiling.down_n), num_streams, num_rows)](
        *streams, down, gates, factors, eps, injects=output is not None, num_streams=num_streams, width=width,
        num_outputs=num_outputs, gates_width=gates_width, block_n=tiling.down_n, block_k=tiling.down_k,
        step_tile=triton.next_power_of_2(width // tiling.down_k), num_warps=tiling.down_warps,
        **begins_early(residual.device),
    )  # fmt: skip
    mixed = torch.empty(num_rows, width, dtype=torch.float32, device=residual.device)
    own_inject = torch.empty(num_rows, num_outputs - rank, dtype=torch.float32, device=residual.device)
    _mix_kernel[(triton.cdiv(width, tiling.mix_n), num_rows)](
        *streams, gates, factors, up, mixed, own_inject, injects=output is not None, num_streams=num_streams,
        stream_tile=triton.next_power_of_2(num_streams), width=width, rank=rank, gates_width=gates_width,
        num_injects=num_outputs - rank, inject_tile=triton.next_power_of_2(max(1, num_outputs - rank)),
        block_n=tiling.mix_n, block_k=tiling.mix_k, step_tile=triton.next_power_of_2(rank // tiling.mix_k),
        num_warps=tiling.mix_warps, **begins_early(residual.device),
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
def _load_lines(lines, places, is_place, block_k: tl.constexpr, most: tl.constexpr):
    """Weights [lines, steps, block_k] at `places` [steps, block_k] of `lines`, at most `most` in a row to a thread."""
    alignment: tl.constexpr = min(most, block_k) * lines.dtype.element_ty.primitive_bitwidth // 8
    pointers = tl.multiple_of(lines[:, None, None] + places[None], (1, 1, alignment))
    return tl.load(pointers, mask=is_place[None], other=0.0, eviction_policy="evict_first")


@triton.jit
def _load_places(row, places, is_place, block_k: tl.constexpr):
    """fp32 [steps, block_k] of a row, whose places lie side by side."""
    alignment: tl.constexpr = min(4, block_k) * row.dtype.element_ty.primitive_bitwidth // 8
    pointers = tl.multiple_of(row + places, (1, alignment))
    return tl.load(pointers, mask=is_place, other=0.0).to(tl.float32)


@triton.jit
def _widened(weights):
    """fp32 of bf16 [lines, steps, block_k], an instruction each: by itself the compiler takes two for every other."""
    if weights.dtype == tl.bfloat16 and weights.shape[2] % 2 == 0:
        pairs: tl.constexpr = (weights.shape[0], weights.shape[1], weights.shape[2] // 2, 2)
        even, odd = tl.split(tl.reshape(weights.to(tl.int16, bitcast=True).to(tl.int32), pairs))
        words = (even & 0xFFFF) | (odd << 16)
        even, odd = (words << 16).to(tl.float32, bitcast=True), (words & -0x10000).to(tl.float32, bitcast=True)
        wide = tl.reshape(tl.join(even, odd), weights.shape)
    else:
        wide = weights.to(tl.float32)
    return wide


@triton.jit
def _multiply(values, weights):
    """fp32 [lines]: values fp32 [steps, block_k] times weights [lines, steps, block_k]."""
    # Steps are in a thread's own registers.
    return row_sum(row_sum(values[None] * _widened(weights), 1), 1)


@row_kernel
def _low_rank_kernel(
    residual, residual_stride, output, output_stride, inject, inject_stride, scale, down, gates, factors, eps,
    injects: tl.constexpr, num_streams: tl.constexpr, width: tl.constexpr, num_outputs: tl.constexpr,
    gates_width: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, step_tile: tl.constexpr,
):  # fmt: skip
    """gates [N, streams, gates_width]: what each stream adds to an output; factors [N, streams] of their norms."""
    tile, stream, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    steps = tl.arange(0, step_tile)[:, None]
    places = steps * block_k + tl.arange(0, block_k)[None, :]
    is_place = tl.broadcast_to(steps < width // block_k, (step_tile, block_k))
    outputs = tile * block_n + tl.arange(0, block_n)
    lines = down + tl.minimum(outputs, num_outputs - 1).to(tl.int64) * (num_streams * width) + stream * width
    # Four as of fp32: so a thread has the values that belong to its weights.
    weights = _load_lines(lines, places, is_place, block_k, 4)
    scales = _load_places(scale + stream * width, places, is_place, block_k)
    await_last_launch()
    values = _load_places(residual + row * residual_stride + stream * width, places, is_place, block_k)
    if injects:
        weight = tl.load(inject + row * inject_stride + stream)
        added = _load_places(output + row * output_stride, places, is_place, block_k)
        values = tl.fma(added, tl.broadcast_to(weight, (step_tile, block_k)), values)
    factor = tl.rsqrt(row_sum(row_sum(values * values, 0), 0) / width + eps)
    gate = _multiply(values * scales, weights) * factor
    source = row * num_streams + stream
    tl.store(gates + source * gates_width + outputs, gate, mask=outputs < num_outputs)
    tl.store(factors + source, factor, mask=tile == 0)


@row_kernel
def _mix_kernel(
    residual, residual_stride, output, output_stride, inject, inject_stride, scale, gates, factors, up, mixed,
    own_inject, injects: tl.constexpr, num_streams: tl.constexpr, stream_tile: tl.constexpr, width: tl.constexpr,
    rank: tl.constexpr, gates_width: tl.constexpr, num_injects: tl.constexpr, inject_tile: tl.constexpr,
    block_n: tl.constexpr, block_k: tl.constexpr, step_tile: tl.constexpr,
):  # fmt: skip
    """gates [N, streams, >= rank + injects]: parts of the low-rank activations, then of the raw inject gates.

    A block's tile holds its hidden dims of one stream after the other; with `injects` it keeps their new residual.
    """
    tile, row = tl.program_id(0), tl.program_id(1)
    lines = tl.arange(0, stream_tile * block_n)
    stream, dims = lines // block_n, tile * block_n + lines % block_n
    is_line = (stream < num_streams) & (dims < width)
    steps = tl.arange(0, step_tile)[:, None]
    places = steps * block_k + tl.arange(0, block_k)[None, :]
    is_place = tl.broadcast_to(steps < rank // block_k, (step_tile, block_k))
    weights = _load_lines(up + tl.where(is_line, stream * width + dims, 0) * rank, places, is_place, block_k, 8)
    # Under way while the weights are, and past the L1 cache, which may be older than the launches that wrote them. A
    # store of what comes of them would hold the weights up.
    targets = residual + row * residual_stride + stream * width + dims
    values = tl.load(targets, mask=is_line, other=0.0, cache_modifier=".cg")
    if injects:
        added = tl.load(output + row * output_stride + dims, mask=is_line, other=0.0, cache_modifier=".cg")
        weight = tl.load(inject + row * inject_stride + stream, mask=is_line, other=0.0, cache_modifier=".cg")
    scales = tl.load(scale + stream * width + dims, mask=is_line, other=0.0)
    await_last_launch()
    factor = tl.load(factors + row * num_streams + stream, mask=is_line, other=0.0)
    gates += row * (num_streams * gates_width)
    injects_at = tl.arange(0, inject_tile)
    is_inject = (injects_at < num_injects) & (tile == 0)
    gate, raw_inject = tl.zeros((step_tile, block_k), tl.float32), tl.zeros((inject_tile,), tl.float32)
    for source in tl.static_range(num_streams):
        gate += _load_places(gates + source * gates_width, places, is_place, block_k)
        raw_inject += tl.load(gates + source * gates_width + rank + injects_at, mask=is_inject, other=0.0)
    mix = sigmoid(_multiply(silu(gate), weights))
    if injects:
        values = tl.fma(added.to(tl.float32), weight, values)
        tl.store(targets, values, mask=is_line)
    weighted = tl.where(is_line, mix * (values * factor * scales), 0.0)
    total = row_sum(tl.reshape(weighted, (stream_tile, block_n)), 0) / num_streams
    dims = tile * block_n + tl.arange(0, block_n)
    tl.store(mixed + row * width + dims, total, mask=dims < width)
    tl.store(own_inject + row * num_injects + injects_at, 2.0 * sigmoid(raw_inject), mask=is_inject)
