"""The slot map on the device: *ensure* in one launch of one block. Twin: `torch_ops.slots`.

Victims are found in rounds: every slot's score and number are one int64 key, kept in registers, and a round takes the
lowest. An empty slot's key is below all others. A routed expert is known by its stamp, which is that of this call, so
nothing is searched: `lru` never gets as far as the newest stamps, `rule` leaves them out. (So `rule` stamps too.)
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.kernels.torch_ops.slots import SlotState, begin_step
from runtime.kernels.triton_ops.arrivals import FAR_STRIDE
from runtime.kernels.triton_ops.launch_order import await_last_launch, begins_early
from runtime.kernels.triton_ops.rows import check_contiguous
from runtime.rule_numbers import (
    BETA,
    DECAY_SHIFT,
    FRACTION_BITS,
    LARGEST_AGE,
    LARGEST_STEP,
    LOG2_TABLE,
    LOG2_WEIGHT,
    NEAR_MISS_LOGIT,
    STEP_BITS,
)

__all__ = ["SlotState", "begin_step", "ensure"]

SLOT_BITS = 16
"""Of a key; the score has the others: scores stay within 2^47 for 2^30 tokens or 2^40 calls."""
MOST_KEYS = 4096
"""That registers hold at a time; more slots than that take their turns."""
_STAMP, _LAST_TOK, _LOG2 = tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
"""Rows of `SlotState.seen`; row 0 is the owner."""
_EMPTY_KEY = tl.constexpr(-(1 << 62))
_TAKEN_KEY = tl.constexpr((1 << 63) - 1)
_SLOT_BITS = tl.constexpr(SLOT_BITS)
_SLOT_MASK = tl.constexpr((1 << SLOT_BITS) - 1)
_FRACTION = tl.constexpr(FRACTION_BITS)
_DECAY = tl.constexpr(DECAY_SHIFT)
_STEP_SHIFT = tl.constexpr(FRACTION_BITS - STEP_BITS)
_HALF_STEP = tl.constexpr(1 << (FRACTION_BITS - STEP_BITS - 1))
_LARGEST_STEP = tl.constexpr(LARGEST_STEP)
_LARGEST_AGE = tl.constexpr(LARGEST_AGE)
_LOG2_WEIGHT = tl.constexpr(LOG2_WEIGHT)
_WAIT = tl.constexpr(BETA << FRACTION_BITS)
_FAR_STRIDE = tl.constexpr(FAR_STRIDE)
_NEAR = tl.constexpr(float(NEAR_MISS_LOGIT))


ENSURE_WARPS = (4, 8, 16)
_MOST_REGISTERS = 255
_REGISTERS_PER_LANE = 2048
"""Of a multiprocessor. Left alone, compilers spill keys to make room for a second block."""


@triton.jit
def _routes(ids_ptr, slot_of_ptr, NUM_ROUTES: tl.constexpr, ROUTES: tl.constexpr):
    """Expert, slot (-1: missed) and whether it exists, of every route; an expert past all others where it doesn't."""
    routes = tl.arange(0, ROUTES)
    is_route = routes < NUM_ROUTES
    experts = tl.load(ids_ptr + routes, mask=is_route, other=1 << 30).to(tl.int32)
    return experts, tl.load(slot_of_ptr + experts, mask=is_route, other=0), is_route


@triton.jit
def _order(experts, found, other_experts, other_found, is_other, is_miss, ROUTES: tl.constexpr):
    """Each missed route's place in the work list, and each route's position in the order of arrivals: those with a slot
    in router order, then the missed ones by expert, as they are copied. Both are counts, added up in one number."""
    routes, others = tl.arange(0, ROUTES)[:, None], tl.arange(0, ROUTES)[None, :]
    experts, other_experts = experts[:, None], other_experts[None, :]
    is_missed, is_lower = found[:, None] < 0, other_experts < experts
    is_copied_before = is_lower | ((other_experts == experts) & (others < routes))
    is_before = tl.where(other_found[None, :] < 0, is_missed & is_copied_before, is_missed | (others < routes))
    counts = (is_miss[None, :] & is_lower).to(tl.int32) + ((is_before & is_other[None, :]).to(tl.int32) << 16)
    counts = tl.sum(counts, 1)
    return counts & 0xFFFF, counts >> 16


@triton.jit
def _refresh_near_misses(
    ids_ptr,
    logits_ptr,
    last_tok_ptr,
    slot_of_ptr,
    seen_ptr,
    tok,
    NUM_ROWS: tl.constexpr,
    NUM_CHOICES: tl.constexpr,
    CHOICES: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    EXPERTS: tl.constexpr,
    NUM_SLOTS: tl.constexpr,
):
    """Experts within `_NEAR` of the lowest logit that a row routed count as used one token ago."""
    experts = tl.arange(0, EXPERTS)
    is_expert = experts < NUM_EXPERTS
    choices = tl.arange(0, CHOICES)
    # The hints keep an expert's numbers in one thread, whatever their width.
    last_tok = tl.load(tl.multiple_of(last_tok_ptr + experts, 8), mask=is_expert, other=0)
    slots = tl.load(tl.multiple_of(slot_of_ptr + experts, 4), mask=is_expert, other=-1)
    is_near = experts < 0
    for row in tl.static_range(NUM_ROWS):
        row_ptr = logits_ptr + row * NUM_EXPERTS
        is_choice = choices < NUM_CHOICES
        ids = tl.load(ids_ptr + row * NUM_CHOICES + choices, mask=is_choice, other=0)
        lowest = tl.min(tl.load(row_ptr + ids, mask=is_choice, other=float("inf")), 0)
        logits = tl.load(tl.multiple_of(row_ptr + experts, 4), mask=is_expert, other=float("-inf"))
        is_near |= logits >= lowest - _NEAR
    is_near &= is_expert & (last_tok < tok - 1)
    refreshed = tl.zeros_like(last_tok) + (tok - 1)
    tl.store(tl.multiple_of(last_tok_ptr + experts, 8), refreshed, mask=is_near)
    tl.store(seen_ptr + _LAST_TOK * NUM_SLOTS + slots, refreshed, mask=is_near & (slots >= 0))


@triton.jit
def _log2_of_one_more(log2_count, table_ptr, mask):
    """log2(2^a + 1) of fixed-point a."""
    steps = (tl.abs(log2_count) + _HALF_STEP) >> _STEP_SHIFT
    steps = tl.minimum(steps, _LARGEST_STEP)
    return tl.maximum(log2_count, 0) + tl.load(table_ptr + steps, mask=mask, other=0)


@triton.jit
def _count_uses(last_tok_ptr, log2_count_ptr, counted_tok_ptr, experts, log2_count, tok, is_route):
    """Store a use of every route's expert; rows that route to the same expert store the same."""
    same = tl.zeros_like(log2_count)
    tl.store(log2_count_ptr + experts, log2_count, mask=is_route)
    tl.store(counted_tok_ptr + experts, tok + same, mask=is_route)
    tl.store(last_tok_ptr + experts, tok + same, mask=is_route)


@triton.jit
def _rule_scores(owners, last_tok, log2_count, layer, tok, NUM_LAYERS: tl.constexpr, NUM_EXPERTS: tl.constexpr):
    """int64 per owner: `experts.policy_rule`. log2_count is that of token 0: it decays by the token's number."""
    ahead = owners // NUM_EXPERTS - layer
    distance = tl.where(ahead > 0, ahead, ahead + NUM_LAYERS)
    wait = (_WAIT * distance) // NUM_LAYERS
    age = tl.minimum(tok - (ahead > 0).to(tl.int64) - last_tok, _LARGEST_AGE)
    return (log2_count - (tok << _DECAY)) * _LOG2_WEIGHT - (age << _FRACTION) - wait


@triton.jit
def _see_stamp(seen_ptr, slots, owners, mask, stamp, NUM_SLOTS: tl.constexpr):
    """That an owner is used in this call, by slot."""
    tl.store(seen_ptr + slots, owners.to(tl.int64), mask=mask)
    tl.store(seen_ptr + _STAMP * NUM_SLOTS + slots, stamp + tl.zeros_like(owners).to(tl.int64), mask=mask)


@triton.jit
def _see_count(seen_ptr, slots, mask, tok, log2_count, NUM_SLOTS: tl.constexpr):
    """What a use leaves under `rule`, by slot."""
    tl.store(seen_ptr + _LAST_TOK * NUM_SLOTS + slots, tok + tl.zeros_like(log2_count), mask=mask)
    tl.store(seen_ptr + _LOG2 * NUM_SLOTS + slots, log2_count + (tok << _DECAY), mask=mask)


@triton.jit
def _seen_place(seen_ptr, PART: tl.constexpr, slots, NUM_SLOTS: tl.constexpr):
    """Where a part of what was seen lies. The hint keeps a slot's numbers in one thread, whatever their width."""
    return tl.multiple_of(seen_ptr + PART * NUM_SLOTS + slots, 8)


@triton.jit
def _take_lowest(keys, num_wanted, ranks):
    """The keys of the given ranks, int64 [ranks]; ranks of `num_wanted` and more get 0."""
    taken = tl.zeros_like(ranks).to(tl.int64)
    for place in range(num_wanted):
        lowest = tl.min(keys, 0)
        keys = tl.where(keys == lowest, _TAKEN_KEY, keys)
        taken = tl.where(ranks == place, lowest, taken)
    return taken


# One binary for all layers.
@triton.jit(do_not_specialize=["layer", "bytes_per_miss"])
def _ensure_kernel(
    ids_ptr,
    logits_ptr,
    slot_of_ptr,
    owner_ptr,
    clock_ptr,
    stamps_ptr,
    tok_ptr,
    last_tok_ptr,
    log2_count_ptr,
    counted_tok_ptr,
    seen_ptr,
    table_ptr,
    counters_ptr,
    missed_experts_ptr,
    missed_slots_ptr,
    num_missed_ptr,
    arrived_ptr,
    lowest_ptr,
    slots_ptr,
    arrivals_ptr,
    layer,
    bytes_per_miss,
    IS_RULE: tl.constexpr,
    NUM_ROWS: tl.constexpr,
    NUM_CHOICES: tl.constexpr,
    CHOICES: tl.constexpr,
    ROUTES: tl.constexpr,
    NUM_LAYERS: tl.constexpr,
    NUM_EXPERTS: tl.constexpr,
    EXPERTS: tl.constexpr,
    NUM_SLOTS: tl.constexpr,
    SLOTS: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK_TILE: tl.constexpr,
):
    NUM_ROUTES: tl.constexpr = NUM_ROWS * NUM_CHOICES
    await_last_launch()
    layer_slots_ptr = slot_of_ptr + layer * NUM_EXPERTS
    stamp = tl.load(clock_ptr) + 1
    tok = tl.load(tok_ptr)
    experts, found, is_route = _routes(ids_ptr, layer_slots_ptr, NUM_ROUTES, ROUTES)
    other_experts, other_found, is_other = _routes(ids_ptr, layer_slots_ptr, NUM_ROUTES, ROUTES)
    layer_owners = experts + layer * NUM_EXPERTS
    # Under way while the routes are sorted out.
    first_slots = tl.arange(0, SLOTS)
    first_owners = tl.load(
        tl.multiple_of(owner_ptr + first_slots, 4), mask=first_slots < NUM_SLOTS, other=-1, eviction_policy="evict_last"
    )

    # Distinct experts: of the rows that route to one, the first counts.
    if NUM_ROWS == 1:
        is_first = is_other
    else:
        routes = tl.arange(0, ROUTES)
        is_same = (experts[:, None] == other_experts[None, :]) & (routes[:, None] < routes[None, :])
        is_first = is_other & (tl.max(is_same.to(tl.int32), 0) == 0)
    is_miss = is_first & (other_found < 0)
    ranks, positions = _order(experts, found, other_experts, other_found, is_other, is_miss, ROUTES)
    is_missed = is_route & (found < 0)
    num_missed = tl.sum(is_miss.to(tl.int32), 0)
    num_routed = tl.sum(is_first.to(tl.int32), 0)
    counters = tl.arange(0, 2 * ROUTES)
    is_counter = counters < 2 * min(NUM_ROUTES, NUM_EXPERTS)
    tl.store(arrived_ptr + counters * _FAR_STRIDE, tl.zeros_like(counters), mask=is_counter)

    tl.store(stamps_ptr + layer_owners, stamp + tl.zeros([ROUTES], tl.int64), mask=is_route)
    log2_count = tl.zeros([ROUTES], tl.int64)
    if IS_RULE:
        log2_count = tl.load(log2_count_ptr + layer_owners, mask=is_route, other=0)
        counted_tok = tl.load(counted_tok_ptr + layer_owners, mask=is_route, other=0)
        layer_tok_ptr = last_tok_ptr + layer * NUM_EXPERTS
        _refresh_near_misses(
            ids_ptr,
            logits_ptr,
            layer_tok_ptr,
            layer_slots_ptr,
            seen_ptr,
            tok,
            NUM_ROWS,
            NUM_CHOICES,
            CHOICES,
            NUM_EXPERTS,
            EXPERTS,
            NUM_SLOTS,
        )
        log2_count -= (tok - counted_tok) << _DECAY
    _see_stamp(seen_ptr, found, layer_owners, is_route & (found >= 0), stamp, NUM_SLOTS)
    tl.store(num_missed_ptr, num_missed)
    tl.store(counters_ptr, tl.load(counters_ptr) + num_routed)
    if num_missed > 0:
        tl.store(counters_ptr + 1, tl.load(counters_ptr + 1) + num_missed)
        tl.store(counters_ptr + 2, tl.load(counters_ptr + 2) + num_missed * bytes_per_miss)
        # Scores are read after this call's uses were written.
        tl.debug_barrier()
        for chunk in tl.static_range(CHUNKS):
            slots = chunk * SLOTS + tl.arange(0, SLOTS)
            is_slot = slots < NUM_SLOTS
            owners = first_owners
            if chunk:
                owners = tl.load(
                    tl.multiple_of(owner_ptr + slots, 4), mask=is_slot, other=-1, eviction_policy="evict_last"
                )
            is_owned = owners >= 0
            # All that was seen is asked for before anything waits for it.
            seen_owners = tl.load(
                _seen_place(seen_ptr, 0, slots, NUM_SLOTS), mask=is_slot, other=-1, eviction_policy="evict_last"
            )
            stamps = tl.load(
                _seen_place(seen_ptr, _STAMP, slots, NUM_SLOTS), mask=is_slot, other=0, eviction_policy="evict_last"
            )
            last_tok = stamps
            counts = stamps
            if IS_RULE:
                last_tok = tl.load(
                    _seen_place(seen_ptr, _LAST_TOK, slots, NUM_SLOTS),
                    mask=is_slot,
                    other=0,
                    eviction_policy="evict_last",
                )
                counts = tl.load(
                    _seen_place(seen_ptr, _LOG2, slots, NUM_SLOTS), mask=is_slot, other=0, eviction_policy="evict_last"
                )
            # Read by owner, a line to each, only where another's state was seen.
            is_stale = is_slot & (seen_owners != owners)
            is_read = is_stale & is_owned
            read = tl.load(stamps_ptr + owners, mask=is_read, other=0)
            stamps = tl.where(is_stale, read, stamps)
            tl.store(_seen_place(seen_ptr, 0, slots, NUM_SLOTS), owners.to(tl.int64), mask=is_stale)
            tl.store(_seen_place(seen_ptr, _STAMP, slots, NUM_SLOTS), stamps, mask=is_stale)
            if IS_RULE:
                read = tl.load(last_tok_ptr + owners, mask=is_read, other=0)
                last_tok = tl.where(is_stale, read, last_tok)
                read = tl.load(log2_count_ptr + owners, mask=is_read, other=0)
                read += tl.load(counted_tok_ptr + owners, mask=is_read, other=0) << _DECAY
                counts = tl.where(is_stale, read, counts)
                tl.store(_seen_place(seen_ptr, _LAST_TOK, slots, NUM_SLOTS), last_tok, mask=is_stale)
                tl.store(_seen_place(seen_ptr, _LOG2, slots, NUM_SLOTS), counts, mask=is_stale)
                scores = _rule_scores(owners, last_tok, counts, layer, tok, NUM_LAYERS, NUM_EXPERTS)
                is_pinned = is_owned & (stamps == stamp)
            else:
                scores = stamps
                is_pinned = owners < -1
            keys = tl.where(is_owned, scores << _SLOT_BITS, _EMPTY_KEY) + slots
            keys = tl.where(is_slot & ~is_pinned, keys, _TAKEN_KEY)
            if CHUNKS > 1:
                places = tl.arange(0, ROUTES)
                lowest = _take_lowest(keys, num_missed, places)
                tl.store(lowest_ptr + chunk * ROUTES + places, lowest, mask=places < num_missed)
        if CHUNKS > 1:
            tl.debug_barrier()
            places = tl.arange(0, CHUNK_TILE * ROUTES)
            is_lowest = (places < CHUNKS * ROUTES) & (places % ROUTES < num_missed)
            keys = tl.load(lowest_ptr + places, mask=is_lowest, other=_TAKEN_KEY)
        victims = (_take_lowest(keys, num_missed, ranks) & _SLOT_MASK).to(tl.int32)
        evicted = tl.load(owner_ptr + victims, mask=is_missed, other=-1)
        # Rows that route to the same expert must all have read its victim's old owner.
        tl.debug_barrier()
        tl.store(slot_of_ptr + evicted, tl.full([ROUTES], -1, tl.int32), mask=is_missed & (evicted >= 0))
        tl.store(owner_ptr + victims, layer_owners, mask=is_missed)
        tl.store(layer_slots_ptr + experts, victims, mask=is_missed)
        _see_stamp(seen_ptr, victims, layer_owners, is_missed, stamp, NUM_SLOTS)
        tl.store(missed_experts_ptr + ranks, experts, mask=is_missed)
        tl.store(missed_slots_ptr + ranks, victims, mask=is_missed)
        found = tl.where(is_missed, victims, found)
    tl.store(slots_ptr + tl.arange(0, ROUTES), found, mask=is_route)
    tl.store(arrivals_ptr + positions, tl.arange(0, ROUTES), mask=is_route)
    tl.store(arrivals_ptr + NUM_ROUTES + positions, found, mask=is_route)
    tl.store(arrivals_ptr + 2 * NUM_ROUTES + positions, tl.where(is_missed, ranks, -1), mask=is_route)
    if IS_RULE:
        log2_count = _log2_of_one_more(log2_count, table_ptr, is_route)
    # Every thread has read what others now write: the clock, the counts of an expert of several rows, near misses.
    tl.debug_barrier()
    tl.store(clock_ptr, stamp)
    if IS_RULE:
        # What was routed is pinned, so its count is of no use before.
        _count_uses(last_tok_ptr, log2_count_ptr, counted_tok_ptr, layer_owners, log2_count, tok, is_route)
        _see_count(seen_ptr, found, is_route, tok, log2_count, NUM_SLOTS)


def ensure(
    state: SlotState,
    policy: str,
    layer: int,
    expert_ids: Tensor,
    router_logits: Tensor,
    bytes_per_miss: int,
    num_warps: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Slots int32 [R, k] of the routed experts, and arrivals int32 [3, R * k]: routes in the order in which their
    records are there (those that need no copy first), the slot of each, and its place in the work list or -1.

    expert_ids int64 [R, k], router_logits fp32 [R, E]; `policy` is lru or rule. Leaves the work list of `copy_missed`
    in the state. Raises ValueError for more slots than a key can number.
    """
    check_contiguous(expert_ids=expert_ids, router_logits=router_logits)
    (num_layers, num_experts), num_slots = state.slot_of.shape, state.owner.numel()
    if num_slots > 1 << SLOT_BITS:
        raise ValueError(f"{num_slots} slots: the kernel numbers {1 << SLOT_BITS}")
    num_rows, num_choices = expert_ids.shape
    slots = torch.empty(expert_ids.shape, dtype=torch.int32, device=expert_ids.device)
    arrivals = torch.empty(3, slots.numel(), dtype=torch.int32, device=slots.device)
    slot_tile = min(triton.next_power_of_2(num_slots), MOST_KEYS)
    num_chunks, most_routes = triton.cdiv(num_slots, slot_tile), triton.next_power_of_2(num_rows * num_choices)
    lowest = torch.empty(triton.next_power_of_2(num_chunks) * most_routes, dtype=torch.int64, device=slots.device)
    num_warps = num_warps or _ensure_warps(slot_tile)
    _ensure_kernel[(1,)](
        expert_ids,
        router_logits,
        state.slot_of,
        state.owner,
        state.clock,
        state.stamps,
        state.tok,
        state.last_tok,
        state.log2_count,
        state.counted_tok,
        state.seen,
        _log2_table(state.owner.device),
        state.counters,
        state.missed_experts,
        state.missed_slots,
        state.num_missed,
        state.arrived,
        lowest,
        slots,
        arrivals,
        layer,
        bytes_per_miss,
        policy == "rule",
        num_rows,
        num_choices,
        triton.next_power_of_2(num_choices),
        most_routes,
        num_layers,
        num_experts,
        triton.next_power_of_2(num_experts),
        num_slots,
        slot_tile,
        num_chunks,
        triton.next_power_of_2(num_chunks),
        num_warps=num_warps,
        maxnreg=min(_MOST_REGISTERS, _REGISTERS_PER_LANE // num_warps),
        **begins_early(slots.device),
    )
    return slots, arrivals


def _ensure_warps(slot_tile: int) -> int:
    """Eight keys per thread, since each round ends with all warps meeting (measured on an H200 at 1,650 slots)."""
    return min(16, max(1, slot_tile // 256))


@lru_cache(maxsize=8)
def _log2_table(device: torch.device) -> Tensor:
    return torch.from_numpy(LOG2_TABLE).to(device)
