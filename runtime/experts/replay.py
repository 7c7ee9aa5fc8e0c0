"""Replays routing traces through the slot cache: what an engine with other slots or another policy would have missed.

The slot cache and the policies are the engine's own, and prefill places experts in empty slots as it does there: at the
engine's slot count a replay counts what the engine counted. Copies and computes nothing.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.errors import UsageError
from runtime.experts.counters import SlotCounters
from runtime.experts.policy import POLICIES, EvictionPolicy, make_policy
from runtime.experts.policy_belady import BeladyPolicy
from runtime.experts.slot_cache import EMPTY, SlotCache
from runtime.experts.trace import (
    DecodeRouted,
    PrefillRouted,
    RoutingTrace,
    SlotsCleared,
    StepStarted,
    TraceEvent,
    TraceFacts,
)
from runtime.rule_numbers import NEAR_MISS_LOGIT

REPLAY_POLICIES = (*POLICIES, BeladyPolicy.name)


def replay(traces: Sequence[RoutingTrace], policy: str, num_slots: int) -> SlotCounters:
    """What decode counts over the traces, one after the other, as one engine that starts with empty slots.

    The traces must be of one model. Raises UsageError for too few slots or an unknown policy.
    """
    facts = traces[0].facts
    cache = SlotCache(
        facts.num_layers,
        facts.num_experts,
        num_slots,
        _make_policy(policy, traces),
        num_choices=facts.num_choices,
        max_rows=max(trace.max_rows for trace in traces),
    )
    for trace in traces:
        for event in trace.events():
            _apply(cache, event)
    return cache.counters


def count_distinct(traces: Iterable[RoutingTrace]) -> int:
    """Experts that decode routes to at least once."""
    used = {
        (event.layer, expert)
        for trace in traces
        for event in trace.events()
        if isinstance(event, DecodeRouted)
        for expert in event.expert_ids.reshape(-1).tolist()
    }
    return len(used)


def check_same_model(traces: Sequence[RoutingTrace]) -> TraceFacts:
    """The facts of all traces. Raises UsageError where they differ."""
    first = traces[0]
    for trace in traces[1:]:
        if trace.facts != first.facts:
            raise UsageError(f"{first.name} and {trace.name} are not of the same model; replay them apart.")
    return first.facts


def _make_policy(name: str, traces: Sequence[RoutingTrace]) -> EvictionPolicy:
    facts = traces[0].facts
    if name != BeladyPolicy.name:
        return make_policy(name, facts.num_layers, facts.num_experts)
    calls = [
        (event.layer, np.unique(event.expert_ids))
        for trace in traces
        for event in trace.events()
        if isinstance(event, DecodeRouted)
    ]
    return BeladyPolicy(facts.num_layers, facts.num_experts, calls)


def _apply(cache: SlotCache, event: TraceEvent) -> None:
    match event:
        case StepStarted():
            cache.begin_step()
        case DecodeRouted(layer, expert_ids, near):
            cache.ensure(layer, expert_ids, _logits(cache.num_experts, expert_ids, near))
        case PrefillRouted(layer, experts):
            is_missing = cache.slots_of(layer, np.array(experts, np.int64)) == EMPTY
            cache.place(layer, [expert for expert, missing in zip(experts, is_missing, strict=True) if missing])
        case SlotsCleared():
            cache.clear()


def _logits(num_experts: int, expert_ids: NDArray[np.int64], near: NDArray[np.int64]) -> NDArray[np.float32]:
    """Router logits that tell a policy as much as those of the engine: who was routed, who nearly was."""
    logits = np.full((len(expert_ids), num_experts), -2 * NEAR_MISS_LOGIT, np.float32)
    logits[:, near] = 0.0
    logits[:, expert_ids.reshape(-1)] = 0.0
    return logits
