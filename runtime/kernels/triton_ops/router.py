"""Top-k routing in one launch, with ties to the lowest expert, and the weighted sum of the routes. Twin:
`torch_ops.router`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.rows import check_contiguous, ordered_bits, value_of_ordered_bits

_BELOW_ALL = -(2**31)
_COMBINE_BLOCK = 128
"""Outputs per program: one to a thread, whose loads are all under way at once."""


@triton.jit
def choose(
    logits,
    experts,
    ids_ptr,
    weights_ptr,
    NUM_ROUTED: tl.constexpr,
    ROUTE_TILE: tl.constexpr,
    RENORMALISES: tl.constexpr,
    BELOW_ALL: tl.constexpr,
):
    """Write ids and weights of one row: logits fp32 [tile], -inf beyond the last expert; experts 0, 1, ... [tile]."""
    keys = ordered_bits(logits)
    routes = tl.arange(0, ROUTE_TILE)
    best_ids = tl.zeros([ROUTE_TILE], tl.int32)
    best_keys = tl.full([ROUTE_TILE], BELOW_ALL, tl.int32)
    # Two exact integer reductions per route: the compiler has one instruction for each within a warp.
    for route in tl.static_range(NUM_ROUTED):
        key = tl.max(keys, 0)
        expert = tl.min(tl.where(keys == key, experts, 0x7FFFFFFF), 0)
        keys = tl.where(experts == expert, BELOW_ALL, keys)
        best_ids = tl.where(routes == route, expert, best_ids)
        best_keys = tl.where(routes == route, key, best_keys)
    is_route = routes < NUM_ROUTED
    best = tl.where(is_route, value_of_ordered_bits(best_keys), float("-inf"))
    largest = tl.max(best, 0)
    parts = tl.exp(best - largest)
    total = tl.sum(parts, 0) if RENORMALISES else tl.sum(tl.exp(logits - largest), 0)
    tl.store(ids_ptr + routes, best_ids.to(tl.int64), mask=is_route)
    tl.store(weights_ptr + routes, parts / total, mask=is_route)


@triton.jit
def _route_kernel(
    logits_ptr,
    ids_ptr,
    weights_ptr,
    NUM_EXPERTS: tl.constexpr,
    EXPERT_TILE: tl.constexpr,
    NUM_ROUTED: tl.constexpr,
    ROUTE_TILE: tl.constexpr,
    RENORMALISES: tl.constexpr,
    BELOW_ALL: tl.constexpr,
):
    await_last_launch()
    row = tl.program_id(0)
    experts = tl.arange(0, EXPERT_TILE)
    is_expert = experts < NUM_EXPERTS
    logits = tl.load(logits_ptr + row * NUM_EXPERTS + experts, mask=is_expert, other=float("-inf")).to(tl.float32)
    choose(
        logits,
        experts,
        ids_ptr + row * NUM_ROUTED,
        weights_ptr + row * NUM_ROUTED,
        NUM_ROUTED,
        ROUTE_TILE,
        RENORMALISES,
        BELOW_ALL,
    )


def route(logits: Tensor, num_routed: int, renormalises: bool) -> tuple[Tensor, Tensor]:
    """Expert ids int64 [N, k] in falling order of logit, equal logits by rising id, and weights fp32 [N, k].

    logits [N, E], contiguous, fp32 or narrower. Raises ValueError for strided ones.
    """
    check_contiguous(logits=logits)
    num_rows, num_experts = logits.shape
    ids = torch.empty(num_rows, num_routed, dtype=torch.int64, device=logits.device)
    weights = torch.empty(num_rows, num_routed, dtype=torch.float32, device=logits.device)
    _route_kernel[(num_rows,)](
        logits,
        ids,
        weights,
        num_experts,
        triton.next_power_of_2(num_experts),
        num_routed,
        triton.next_power_of_2(num_routed),
        renormalises,
        _BELOW_ALL,
        num_warps=1,
        **begins_early(logits.device),
    )
    return ids, weights


@triton.jit
def _combine_kernel(
    rows_ptr,
    weights_ptr,
    shared_ptr,
    output_ptr,
    HIDDEN: tl.constexpr,
    NUM_ROUTED: tl.constexpr,
    HAS_SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (block of outputs, row)."""
    await_last_launch()
    row = tl.program_id(1)
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < HIDDEN
    total = tl.zeros([BLOCK], tl.float32)
    for route in tl.static_range(NUM_ROUTED):
        values = tl.load(rows_ptr + (row * NUM_ROUTED + route) * HIDDEN + places, mask=mask)
        total = tl.fma(values, tl.load(weights_ptr + row * NUM_ROUTED + route) + tl.zeros_like(values), total)
    if HAS_SHARED:
        total += tl.load(shared_ptr + row * HIDDEN + places, mask=mask).to(tl.float32)
    tl.store(output_ptr + row * HIDDEN + places, total, mask=mask)


def combine_routes(rows: Tensor, weights: Tensor, shared: Tensor | None = None) -> Tensor:
    """sum_j weights[:, j] * rows[:, j] in router order, then plus `shared`: fp32 [N, H].

    rows fp32 [N, k, H], weights fp32 [N, k] and shared [N, H], all contiguous.
    """
    check_contiguous(rows=rows, weights=weights, **({} if shared is None else {"shared": shared}))
    num_rows, num_routed, hidden = rows.shape
    output = torch.empty(num_rows, hidden, dtype=torch.float32, device=rows.device)
    _combine_kernel[(triton.cdiv(hidden, _COMBINE_BLOCK), num_rows)](
        rows,
        weights,
        output if shared is None else shared,
        output,
        hidden,
        num_routed,
        shared is not None,
        _COMBINE_BLOCK,
        **begins_early(rows.device),
    )
    return output
