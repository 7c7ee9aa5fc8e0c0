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
    [R, Hv]; of all of them rows are contiguous. The states `state_rows` of pool fp32 [rows, Hv, dk, dv] move on: both
    are read while the launch before may still run, so it must be another than the last to write them.
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
    row, head = tl.program_id(0), tl.program_id(1)
    columns, keys = tl.program_id(2) * column_block + tl.arange(0, column_block), tl.arange(0, key_block)
    lanes = tl.arange(0, value_block)
    is_column, is_key, is_real = columns < value_dim, keys < key_dim, lanes < value_dim
    # None of this comes from the launch before, so it is read beside that one: past the L1 cache, which may be older.
    start = pool + (tl.load(state_rows + row) * num_value_heads + head) * (key_dim * value_dim)
    places = tl.multiple_of(start + keys[:, None] * value_dim + columns[None, :], (1, 16))
    is_state = is_key[:, None] & is_column[None, :]
    state = tl.load(places, mask=is_state, other=0.0, cache_modifier=".cg")
    rate, bias = tl.load(decay_rate + head), tl.load(dt_bias + head)
    scale = tl.load(norm + lanes, mask=is_real, other=0.0)
    await_last_launch()
    # All under way before the first is used.
    decay, strength = tl.load(decay_gate + row * decay_stride + head), tl.load(write + row * write_stride + head)
    queries = mixed + row * mixed_stride + head // (num_value_heads // num_key_heads) * key_dim + keys
    query = tl.load(queries, mask=is_key, other=0.0)
    key = tl.load(queries + num_key_heads * key_dim, mask=is_key, other=0.0)
    values = mixed + row * mixed_stride + 2 * num_key_heads * key_dim + head * value_dim + columns
    value = tl.load(values, mask=is_column, other=0.0)
    gate = tl.load(output_gate + row * output_stride + head * value_dim + lanes, mask=is_real, other=0.0)
    decay = tl.exp(_softplus(decay + bias) * rate)
    query, key = _l2_normalised(query) * (key_dim**-0.5), _l2_normalised(key)
    state, read = _step(state, query, key, value, decay, sigmoid(strength))
    activated = sigmoid(gate) if is_sigmoid else silu(gate)
    if num_parts > 1:
        own = reads + (row * num_value_heads + head) * value_dim
        tl.store(own + columns, read, mask=is_column, cache_modifier=".cg")
        is_last = is_last_arrival(counters + row * num_value_heads + head, num_parts)
        read = tl.load(own + lanes, mask=is_real & is_last, other=0.0, cache_modifier=".cg")
        # An arrival waits for all stores before it.
        tl.store(places, state, mask=is_state)
        if not is_last:
            return
    else:
        tl.store(places, state, mask=is_state)
    values = normalised(read, eps, value_dim) * scale * activated
    tl.store(output + (row * num_value_heads + head) * value_dim + lanes, values, mask=is_real)


@triton.jit
def _step(state, query, key, value, decay, strength):
    """The columns [keys, columns] of a state moved on, and what is read of them."""
    state *= decay
    written = (value - row_sum(state * key[:, None], 0)) * strength
    state = tl.fma(tl.broadcast_to(key[:, None], state.shape), tl.broadcast_to(written[None, :], state.shape), state)
    return state, row_sum(state * query[:, None], 0)


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
