"""The slot map on the device: *ensure* and the miss copy, in tensors alone. What `experts.slot_cache` and its policies
do with numpy, victim for victim.

ensure gives every routed expert a slot: empty slots first, then the policy's lowest score, ties to the lowest slot;
experts routed in the call are pinned; misses are served in ascending expert order. Nothing waits for the device.
"""

from dataclasses import dataclass, fields
from functools import lru_cache

import torch
from torch import Tensor

from runtime.rule_numbers import (
    BETA,
    DECAY_SHIFT,
    FRACTION_BITS,
    LARGEST_AGE,
    LARGEST_STEP,
    LOG2_TABLE,
    LOG2_WEIGHT,
    NEAR_MISS_LOGIT,
    NEVER_LOG2,
    NEVER_TOKEN,
    STEP_BITS,
)

EMPTY = -1
ARRIVED_PER_RECORD = 64
"""Numbers of `SlotState.arrived` per place of the work list: two counters in cache lines of their own."""
_FIRST, _NEVER = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
"""Scores of an empty slot and of a pinned one."""


@dataclass(frozen=True)
class SlotState:
    """L layers of E experts over S slots; an owner is layer * E + expert. M is the most routes of one call.

    Policy state is per owner and survives eviction; `lru` uses clock and stamps, `rule` the four after them.
    """

    slot_of: Tensor
    """int32 [L, E], the slot or -1."""
    owner: Tensor
    """int32 [S], the owner or -1."""
    clock: Tensor
    """int64 [1]: calls so far."""
    stamps: Tensor
    """int64 [L*E]: the clock at the last use, 0 before the first."""
    tok: Tensor
    """int64 [1]: decode steps so far."""
    last_tok: Tensor
    """int64 [L*E]: tok at the last use or near miss."""
    log2_count: Tensor
    """int64 [L*E], 16 fraction bits: log2 of the use count as of `counted_tok`."""
    counted_tok: Tensor
    """int64 [L*E]."""
    seen: Tensor
    """int64 [4, S], of the Triton kernel alone: owner, stamp, last_tok and log2_count at token 0, by slot. Policy state
    in the order in which victims are sought; where its owner is not the slot's, it is read anew."""
    counters: Tensor
    """int64 [3]: routed and missed experts, distinct per call, and missed bytes, in total."""
    missed_experts: Tensor
    """int32 [M]; entries past `num_missed` mean nothing."""
    missed_slots: Tensor
    """int32 [M]."""
    num_missed: Tensor
    """int32 [1]: of the last call."""
    arrived: Tensor
    """int32, of the Triton kernels alone: what has come of each missed record. *ensure* leaves zeros."""

    @classmethod
    def empty(
        cls, num_layers: int, num_experts: int, num_slots: int, most_routes: int, device: torch.device | str
    ) -> "SlotState":
        """Every slot empty and no expert used."""

        def full(shape: int | tuple[int, ...], value: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.full((shape,) if isinstance(shape, int) else shape, value, dtype=dtype, device=device)

        num_owners, most_missed = num_layers * num_experts, min(most_routes, num_experts)
        return cls(
            slot_of=full((num_layers, num_experts), EMPTY, torch.int32),
            owner=full(num_slots, EMPTY, torch.int32),
            clock=full(1, 0),
            stamps=full(num_owners, 0),
            tok=full(1, 0),
            last_tok=full(num_owners, NEVER_TOKEN),
            log2_count=full(num_owners, NEVER_LOG2),
            counted_tok=full(num_owners, 0),
            seen=full((4, num_slots), EMPTY),
            counters=full(3, 0),
            missed_experts=full(most_missed, 0, torch.int32),
            missed_slots=full(most_missed, 0, torch.int32),
            num_missed=full(1, 0, torch.int32),
            arrived=full(most_missed * ARRIVED_PER_RECORD, 0, torch.int32),
        )

    def reset(self) -> None:
        """As `empty` made it, at the same addresses."""
        for tensor, value in (
            (self.slot_of, EMPTY), (self.owner, EMPTY), (self.clock, 0), (self.stamps, 0), (self.tok, 0),
            (self.last_tok, NEVER_TOKEN), (self.log2_count, NEVER_LOG2), (self.counted_tok, 0), (self.seen, EMPTY),
            (self.counters, 0),
        ):  # fmt: skip
            tensor.fill_(value)

    def take_history(self, other: "SlotState") -> None:
        """What another state knows of experts and has counted, but not where they lie."""
        for name in ("clock", "stamps", "tok", "last_tok", "log2_count", "counted_tok", "counters"):
            getattr(self, name).copy_(getattr(other, name))

    @property
    def num_bytes(self) -> int:
        return sum(getattr(self, field.name).nbytes for field in fields(self))


def begin_step(state: SlotState) -> None:
    """One decode step starts, whatever its number of rows."""
    state.tok.add_(1)


def ensure(
    state: SlotState, policy: str, layer: int, expert_ids: Tensor, router_logits: Tensor, bytes_per_miss: int
) -> tuple[Tensor, Tensor]:
    """Slots int32 [R, k] of the routed experts, and arrivals int32 [3, R * k]: routes in the order in which their
    records are there (those that need no copy first), the slot of each, and its place in the work list or -1.

    expert_ids int64 [R, k], router_logits fp32 [R, E]; `policy` is lru or rule. Leaves the work list of `copy_missed`
    in the state.
    """
    num_experts = state.slot_of.shape[1]
    is_routed = torch.zeros(num_experts, dtype=torch.bool, device=expert_ids.device)
    is_routed.index_fill_(0, expert_ids.flatten(), True)
    if policy == "lru":
        _stamp(state, layer, is_routed)
        scores = state.stamps[state.owner.clamp_min(0).long()]
    else:
        _count(state, layer, is_routed, expert_ids, router_logits)
        scores = _rule_scores(state, layer)
    is_missed = is_routed & (state.slot_of[layer] == EMPTY)
    _place_missed(state, layer, is_missed, _victims(state, layer, is_routed, scores))
    num_missed = is_missed.sum()
    state.num_missed.copy_(num_missed)
    state.counters.add_(torch.stack((is_routed.sum(), num_missed, num_missed * bytes_per_miss)))
    slots = state.slot_of[layer][expert_ids]
    ranks = is_missed.cumsum(0) - 1
    return slots, _arrivals(slots.flatten(), torch.where(is_missed, ranks, -1)[expert_ids.flatten()])


def copy_missed(state: SlotState, bank: Tensor, pool: Tensor) -> None:
    """Copy the missed experts' records from bank uint8 [E, record_bytes] into their slots in pool uint8 [slots, >=]."""
    for place in range(int(state.num_missed)):
        expert, slot = int(state.missed_experts[place]), int(state.missed_slots[place])
        pool[slot, : bank.shape[1]].copy_(bank[expert])


def _arrivals(slots: Tensor, places: Tensor) -> Tensor:
    """int32 [3, routes]."""
    order = torch.sort(places, stable=True).indices
    return torch.stack((order, slots[order], places[order])).int()


def _stamp(state: SlotState, layer: int, is_routed: Tensor) -> None:
    state.clock.add_(1)
    stamps = state.stamps.view(state.slot_of.shape)[layer]
    stamps.copy_(torch.where(is_routed, state.clock, stamps))


def _count(state: SlotState, layer: int, is_routed: Tensor, expert_ids: Tensor, router_logits: Tensor) -> None:
    """Near misses first (last_tok only), then the uses, once however many rows routed to an expert."""
    shape = state.slot_of.shape
    last_tok, log2_count, counted_tok = (
        part.view(shape)[layer] for part in (state.last_tok, state.log2_count, state.counted_tok)
    )
    lowest = router_logits.gather(1, expert_ids).amin(1, keepdim=True)
    is_near = (router_logits >= lowest - float(NEAR_MISS_LOGIT)).any(0)
    refreshed = torch.where(is_near, torch.maximum(last_tok, state.tok - 1), last_tok)
    decayed = log2_count - ((state.tok - counted_tok) << DECAY_SHIFT)
    half = 1 << (FRACTION_BITS - STEP_BITS - 1)
    steps = ((decayed.abs() + half) >> (FRACTION_BITS - STEP_BITS)).clamp_max(LARGEST_STEP)
    counted = decayed.clamp_min(0) + _table(decayed.device)[steps]
    last_tok.copy_(torch.where(is_routed, state.tok, refreshed))
    log2_count.copy_(torch.where(is_routed, counted, log2_count))
    counted_tok.copy_(torch.where(is_routed, state.tok, counted_tok))


def _rule_scores(state: SlotState, layer: int) -> Tensor:
    num_layers, num_experts = state.slot_of.shape
    owner = state.owner.clamp_min(0).long()
    owner_layer = owner // num_experts
    is_ahead = (owner_layer > layer).long()
    distance = (owner_layer - layer - 1).remainder(num_layers) + 1
    wait = (BETA << FRACTION_BITS) * distance // num_layers
    age = (state.tok - is_ahead - state.last_tok[owner]).clamp_max(LARGEST_AGE)
    log2_count = state.log2_count[owner] - ((state.tok - state.counted_tok[owner]) << DECAY_SHIFT)
    return LOG2_WEIGHT * log2_count - (age << FRACTION_BITS) - wait


def _victims(state: SlotState, layer: int, is_routed: Tensor, scores: Tensor) -> Tensor:
    """Slots int64 [M] in the order in which they are taken."""
    num_experts = state.slot_of.shape[1]
    owner = state.owner.long()
    is_pinned = (owner // num_experts == layer) & is_routed[owner.remainder(num_experts)]
    scores = torch.where(is_pinned, _NEVER, scores).masked_fill(owner == EMPTY, _FIRST)
    return torch.sort(scores, stable=True).indices[: state.missed_slots.shape[0]]


def _place_missed(state: SlotState, layer: int, is_missed: Tensor, victims: Tensor) -> None:
    """The missed experts, ascending, into the first victims; writes the work list."""
    (num_layers, num_experts), most_missed = state.slot_of.shape, victims.shape[0]
    order = torch.sort(is_missed.logical_not().byte(), stable=True).indices[:most_missed]
    is_real = torch.arange(most_missed, device=victims.device) < is_missed.sum()
    evicted = state.owner[victims].long()
    is_cleared = torch.zeros(num_layers * num_experts + 1, dtype=torch.bool, device=victims.device)
    # What is not evicted is marked past the end.
    marks = torch.where(is_real & (evicted != EMPTY), evicted, num_layers * num_experts)
    is_cleared.index_fill_(0, marks, True)
    state.slot_of.view(-1).masked_fill_(is_cleared[:-1], EMPTY)
    state.owner.index_copy_(0, victims, torch.where(is_real, order + layer * num_experts, evicted).int())
    rank = (is_missed.cumsum(0) - 1).clamp(0, most_missed - 1)
    slot_of = state.slot_of[layer]
    slot_of.copy_(torch.where(is_missed, victims[rank].int(), slot_of))
    state.missed_experts.copy_(order)
    state.missed_slots.copy_(victims)


@lru_cache(maxsize=8)
def _table(device: torch.device) -> Tensor:
    return torch.from_numpy(LOG2_TABLE).to(device)
