"""Gated delta rule of one new token per sequence, with its gates and norm: the twin of `torch_ops.delta_rule`'s.

A thread block holds some columns of one value head's state; the last of a head to end norms and gates what all read.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.torch_ops.delta_rule import DeltaNetConstants
from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.norms import normalised
from runtime.kernels.triton_ops.rows import (
    MAX_ROWS,
    check_aligned,
    is_last_arrival,
    row_kernel,
    row_sum,
    sigmoid,
    silu,
)
from runtime.kernels.triton_ops.workspace import NUM_COUNTERS, arrival_counters

_COLUMNS = 32
"""Of a state, to a thread block: one line of memory per row."""


def delta_net_rows(
    mixed: Tensor, gates: tuple[Tensor, Tensor, Tensor], constants: DeltaNetConstants, pool: Tensor, state_rows: Tensor
) -> Tensor:
    """All of a delta net between its convolution and its output projection, fp32 [R, Hv*dv], in one launch.

    mixed fp32 [R, 2*Hk*dk + Hv*dv]: q, k, v; `gates` are the raw output gate [R, Hv*dv], write gate and decay gate
    [R, Hv]; of all of them rows are contiguous. The states `state_rows` of pool fp32 [rows, Hv, dk, dv] move on.
    """
    num_rows, (num_value_heads, key_dim, value_dim) = mixed.shape[0], pool.shape[1:]
    check_aligned(pool=pool)
    output_gate, write, decay = gates
    output = torch.empty(num_rows, num_value_heads * value_dim, dtype=torch.float32, device=mixed.device)
    value_block = triton.next_power_of_2(value_dim)
    # More heads than there are counters for stay whole.
    columns = min(_COLUMNS, value_block) if MAX_ROWS * num_value_heads <= NUM_COUNTERS else value_block
    num_parts = triton.cdiv(value_dim, columns)
    # Neither is used by a block that has all of a head.
    reads = counters = output
    if num_parts > 1:
        reads = torch.empty(num_rows, num_value_heads, value_dim, dtype=torch.float32, device=mixed.device)
        counters = arrival_counters(mixed.device, num_rows * num_value_heads)
    _delta_net_kernel[(num_rows, num_value_heads, num_parts)](
        mixed, mixed.stride(0), output_gate, output_gate.stride(0), write, write.stride(0), decay, decay.stride(0),
        constants.decay_rate, constants.dt_bias, constants.norm, constants.eps, pool, state_rows, reads, counters,
        output,
        is_sigmoid=constants.is_sigmoid, num_key_heads=constants.num_key_heads, num_value_heads=num_value_heads,
        key_dim=key_dim, value_dim=value_dim, key_block=triton.next_power_of_2(key_dim),
        value_block=value_block, column_block=columns, num_parts=num_parts, num_warps=4 if num_parts > 1 else 8,
        **begins_early(mixed.device),
    )  # fmt: skip
    return output


@row_kernel
def _delta_net_kernel(
    mixed, mixed_stride, output_gate, output_stride, write, write_stride, decay_gate, decay_stride,
    decay_rate, dt_bias, norm, eps, pool, state_rows, reads, counters, output, is_sigmoid: tl.constexpr,
    num_key_heads: tl.constexpr, num_value_heads: tl.constexpr, key_dim: tl.constexpr, value_dim: tl.constexpr,
    key_block: tl.constexpr, value_block: tl.constexpr, column_block: tl.constexpr, num_parts: tl.constexpr,
):  # fmt: skip
    await_last_launch()
    row, head = tl.program_id(0), tl.program_id(1)
    columns = tl.program_id(2) * column_block + tl.arange(0, column_block)
    speed = _softplus(tl.load(decay_gate + row * decay_stride + head) + tl.load(dt_bias + head))
    decay = tl.exp(speed * tl.load(decay_rate + head))
    strength = sigmoid(tl.load(write + row * write_stride + head))
    read = _step(
        mixed + row * mixed_stride, head, columns, decay, strength, pool, tl.load(state_rows + row),
        num_key_heads, num_value_heads, key_dim, value_dim, key_block,
    )  # fmt: skip
    if num_parts > 1:
        own = reads + (row * num_value_heads + head) * value_dim
        tl.store(own + columns, read, mask=columns < value_dim, cache_modifier=".cg")
        if not is_last_arrival(counters + row * num_value_heads + head, num_parts):
            return
        columns = tl.arange(0, value_block)
        read = tl.load(own + columns, mask=columns < value_dim, other=0.0, cache_modifier=".cg")
    is_real = columns < value_dim
    gate = tl.load(output_gate + row * output_stride + head * value_dim + columns, mask=is_real, other=0.0)
    activated = sigmoid(gate) if is_sigmoid else silu(gate)
    values = normalised(read, eps, value_dim) * tl.load(norm + columns, mask=is_real, other=0.0) * activated
    tl.store(output + (row * num_value_heads + head) * value_dim + columns, values, mask=is_real)


@triton.jit
def _step(
    mixed, head, columns, decay, strength, pool, state_row,
    num_key_heads: tl.constexpr, num_value_heads: tl.constexpr, key_dim: tl.constexpr, value_dim: tl.constexpr,
    key_block: tl.constexpr,
):  # fmt: skip
    """Read-out fp32 of one value head at `columns`, zeros past value_dim; moves those columns of the state on."""
    keys = tl.arange(0, key_block)
    is_key, is_column = keys < key_dim, columns < value_dim
    # The long load first.
    start = pool + (state_row * num_value_heads + head) * (key_dim * value_dim)
    places = tl.multiple_of(start + keys[:, None] * value_dim + columns[None, :], (1, 16))
    is_state = is_key[:, None] & is_column[None, :]
    state = tl.load(places, mask=is_state, other=0.0)
    key_head = head // (num_value_heads // num_key_heads)
    query = _l2_normalised(tl.load(mixed + key_head * key_dim + keys, mask=is_key, other=0.0)) * (key_dim**-0.5)
    key = _l2_normalised(tl.load(mixed + (num_key_heads + key_head) * key_dim + keys, mask=is_key, other=0.0))
    values = mixed + 2 * num_key_heads * key_dim + head * value_dim + columns
    value = tl.load(values, mask=is_column, other=0.0)
    state *= decay
    written = (value - row_sum(state * key[:, None], 0)) * strength
    state = tl.fma(tl.broadcast_to(key[:, None], state.shape), tl.broadcast_to(written[None, :], state.shape), state)
    tl.store(places, state, mask=is_state)
    return row_sum(state * query[:, None], 0)


@triton.jit
def _l2_normalised(x):
    return x * tl.rsqrt(row_sum(x * x, 0) + 1e-6)


@triton.jit
def _softplus(x):
    """log(1 + exp(x)) with full relative precision; x itself above 20, as torch has it."""
    grown = tl.exp(tl.minimum(x, 20.0))
    rounded = 1.0 + grown
    # log1p: the rounding error of 1 + grown cancels in the quotient.
    precise = tl.where(rounded == 1.0, grown, tl.log(rounded) * (grown / tl.where(rounded == 1.0, 1.0, rounded - 1.0)))
    return tl.where(x > 20.0, x, precise)
