"""Gated residual over S streams, in three launches: inject and norm, the low-rank product, mix."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.dense import DenseTiling, linear, multiply_rows
from runtime.kernels.triton_ops.norms import normalised
from runtime.kernels.triton_ops.rows import MAX_ROWS, check_aligned, check_rows, row_kernel, row_sum, sigmoid

_MIX_BLOCK = 16
"""Hidden dims of one block of the mix, which reads that many rows of `up` per stream."""


def mix_streams(
    residual: Tensor, scale: Tensor, down: Tensor, up: Tensor, num_streams: int, eps: float
) -> tuple[Tensor, Tensor]:
    """The twin of `torch_ops.hyper_connection.mix_streams`; residual and results fp32, down and up bf16 or fp32."""
    return _mix(residual, _inject_and_norm(residual, None, None, scale, num_streams, eps), down, up, num_streams)


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
    eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`inject_output` and, on its result, `mix_streams`: the same bits in one launch less."""
    return _mix(residual, _inject_and_norm(residual, output, inject, scale, num_streams, eps), down, up, num_streams)


def _inject_and_norm(
    residual: Tensor, output: Tensor | None, inject: Tensor | None, scale: Tensor, num_streams: int, eps: float
) -> Tensor:
    """Every stream's norm, fp32 [N, S*H], after the injection into it."""
    num_rows, width = residual.shape[0], residual.shape[1] // num_streams
    check_rows(num_rows)
    normed = torch.empty(residual.shape, dtype=torch.float32, device=residual.device)
    _inject_and_norm_kernel[(num_rows, num_streams)](
        residual, residual.stride(0), output, 0 if output is None else output.stride(0), inject,
        0 if inject is None else inject.stride(0), scale, normed, eps, injects=output is not None,
        num_streams=num_streams, width=width, block=triton.next_power_of_2(width), num_warps=4 if width <= 2048 else 8,
    )  # fmt: skip
    return normed


def _mix(residual: Tensor, normed: Tensor, down: Tensor, up: Tensor, num_streams: int) -> tuple[Tensor, Tensor]:
    num_rows, width = residual.shape[0], residual.shape[1] // num_streams
    rank = up.shape[1]
    gates = torch.empty(num_rows, _padded(down.shape[0]), dtype=torch.float32, device=residual.device)
    linear(normed, down, output=gates)
    mixed = torch.empty(num_rows, width, dtype=torch.float32, device=residual.device)
    inject = torch.empty(num_rows, down.shape[0] - rank, dtype=torch.float32, device=residual.device)
    check_aligned(up=up)
    _mix_kernel[(triton.cdiv(width, _MIX_BLOCK),)](
        gates, gates.stride(0), up, normed, mixed, inject, num_rows,
        num_streams=num_streams, stream_tile=triton.next_power_of_2(num_streams), width=width, rank=rank,
        num_injects=down.shape[0] - rank, block_n=_MIX_BLOCK,
        block_k=min(64, DenseTiling.of(width, rank, up.dtype).block_k), max_rows=MAX_ROWS, num_warps=4, num_stages=4,
    )  # fmt: skip
    return mixed, inject


def _padded(width: int) -> int:
    """Floats of a row that starts aligned."""
    return triton.cdiv(width, 4) * 4


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


@row_kernel
def _inject_and_norm_kernel(
    residual, residual_stride, output, output_stride, inject, inject_stride, scale, normed, eps,
    injects: tl.constexpr, num_streams: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, stream = tl.program_id(0), tl.program_id(1)
    places = tl.arange(0, block)
    is_real = places < width
    target = residual + row * residual_stride + stream * width + places
    values = tl.load(target, mask=is_real, other=0.0)
    if injects:
        added = tl.load(output + row * output_stride + places, mask=is_real, other=0.0).to(tl.float32)
        values = tl.fma(added, tl.load(inject + row * inject_stride + stream), values)
        tl.store(target, values, mask=is_real)
    factors = tl.load(scale + stream * width + places, mask=is_real, other=0.0)
    tl.store(normed + (row * num_streams + stream) * width + places, normalised(values, eps, width) * factors, is_real)


@row_kernel
def _mix_kernel(
    gates, gates_stride, up, normed, mixed, inject, num_rows,
    num_streams: tl.constexpr, stream_tile: tl.constexpr, width: tl.constexpr, rank: tl.constexpr,
    num_injects: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, max_rows: tl.constexpr,
):  # fmt: skip
    """gates [N, >= rank + injects]: the low-rank activations, then the raw inject gates.

    A block's tile holds its hidden dims of one stream after the other.
    """
    lines = tl.arange(0, stream_tile * block_n)
    stream, places = lines // block_n, tl.program_id(0) * block_n + lines % block_n
    is_line = (stream < num_streams) & (places < width)
    rows = tl.arange(0, max_rows)[:, None]
    up_rows = up + tl.where(is_line, stream * width + places, 0) * rank
    weights = sigmoid(
        multiply_rows(gates, gates_stride, num_rows, up_rows, 0, rank, stream_tile * block_n, block_k, max_rows, True)
    )
    normed_places = rows * (num_streams * width) + (stream * width + places)[None, :]
    is_value = (rows < num_rows) & is_line[None, :]
    weighted = weights * tl.load(normed + normed_places, mask=is_value, other=0.0)
    total = row_sum(tl.reshape(weighted, (max_rows, stream_tile, block_n)), 1) / num_streams
    places = tl.program_id(0) * block_n + tl.arange(0, block_n)
    is_real = (rows < num_rows) & (places < width)[None, :]
    tl.store(mixed + rows * width + places[None, :], total, mask=is_real)
    if tl.program_id(0) == 0:
        for target in tl.static_range(num_injects):
            gate = tl.load(gates + rows * gates_stride + rank + target, mask=rows < num_rows, other=0.0)
            tl.store(inject + rows * num_injects + target, 2.0 * sigmoid(gate), mask=rows < num_rows)
