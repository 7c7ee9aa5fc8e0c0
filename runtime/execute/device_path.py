"""Builds what decode needs where it asks the host for nothing: streams, inputs at fixed addresses, steps, a level."""

import logging
import statistics
import time
from dataclasses import dataclass

import torch

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.execute.decode_graph import DecodeSteps
from runtime.execute.decode_inputs import DecodeInputs
from runtime.execute.overlap import LEVELS, OverlapDecision, OverlapLevel
from runtime.execute.placement import Placement
from runtime.execute.streams import DecodeStreams
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.device_slots import DeviceSlots
from runtime.experts.mapped_store import MappedStore
from runtime.experts.store import PinnedStore
from runtime.kernels.ops import select_ops
from runtime.layers.decoder import Decoder
from runtime.memory.budget_plan import BudgetPlan
from runtime.options import EngineOptions
from runtime.spec import ModelSpec

_TRIAL_STEPS = 12
_TRIAL_ROUNDS = 2
_logger = logging.getLogger("hotslot.engine")


@dataclass(frozen=True)
class DevicePath:
    """`streams` is None on a CPU, where the same steps are plain calls."""

    steps: DecodeSteps
    inputs: DecodeInputs
    streams: DecodeStreams | None


def build_experts(
    spec: ModelSpec, store: PinnedStore | MappedStore, budget: BudgetPlan, options: EngineOptions, placement: Placement
) -> DeviceExperts:
    """Empty slots on the device over a store in memory that it can read."""
    if placement.device.type == "cuda":
        store.pin()
    cache = DeviceSlots(
        spec.num_layers,
        spec.moe.num_experts,
        budget.num_slots,
        options.policy,
        num_choices=spec.moe.num_experts_per_token,
        max_rows=budget.max_sequences,
        num_ring_slots=budget.num_ring_slots,
        device=placement.device,
    )
    return DeviceExperts(store, cache, select_ops(placement.device), placement.device, spec.moe.num_experts_per_token)


def build_device_path(
    decoder: Decoder,
    pages: PagePool,
    states: StatePool,
    experts: DeviceExperts,
    budget: BudgetPlan,
    placement: Placement,
    decision: OverlapDecision,
) -> DevicePath:
    """Steps for every number of rows, warmed up and captured; with overlap at the level that takes the most memory."""
    inputs = DecodeInputs(budget.max_sequences, budget.context_tokens, placement.device)
    is_cuda = placement.device.type == "cuda"
    streams = DecodeStreams(placement.device) if is_cuda else None
    # Loading ran on the default stream, which the compute stream does not wait for.
    if is_cuda:
        torch.cuda.synchronize(placement.device)
    if streams is not None:
        experts.copy_beside(streams.copy_lane())
    if budget.is_ngram_table_mapped:
        decoder.keep_ngram_rows(budget.max_sequences)
    steps = DecodeSteps(decoder, pages, states, experts, inputs, streams)
    steps.build("off" if streams is None or decision.level == "off" else LEVELS[-1])
    return DevicePath(steps, inputs, streams)


def choose_level(
    path: DevicePath, experts: DeviceExperts, vocab_size: int, decision: OverlapDecision
) -> OverlapDecision:
    """Build the steps for the slots there are now, at the fastest level; `decision.level` off stays off."""
    if path.streams is None:
        return decision
    if decision.level == "off":
        path.steps.build("off", warms_up=False)
        return decision
    level = _fastest_level(path.steps, path.inputs, experts, path.streams, vocab_size)
    path.steps.build(level, warms_up=False)
    reason = "the serial sequence was the fastest on this machine" if level == "off" else decision.reason
    return OverlapDecision(level, reason)


def _fastest_level(
    steps: DecodeSteps, inputs: DecodeInputs, experts: DeviceExperts, streams: DecodeStreams, vocab_size: int
) -> OverlapLevel:
    """The level with the least median time of a one-row step over random tokens, in interleaved rounds.

    Every run starts from the same empty slots, so all levels see the same hits and misses.
    """
    tokens = torch.randint(vocab_size, (_TRIAL_STEPS,), generator=torch.Generator().manual_seed(0)).tolist()
    times: dict[OverlapLevel, list[float]] = {level: [] for level in LEVELS}
    for _ in range(_TRIAL_ROUNDS):
        for level in LEVELS:
            steps.build(level, most_rows=1)
            with torch.cuda.stream(streams.compute):
                for token in tokens:
                    inputs.fill_idle(1)
                    inputs.rows(1).token_ids.fill_(token)
                    streams.compute.synchronize()
                    started_s = time.perf_counter()
                    steps.launch(1)
                    streams.compute.synchronize()
                    times[level].append(time.perf_counter() - started_s)
            experts.cache.reset()
    medians = {level: statistics.median(times[level]) for level in LEVELS}
    _logger.info("overlap levels, ms per step: %s", {name: round(1e3 * value, 3) for name, value in medians.items()})
    return min(("shared", "resident", "off"), key=lambda level: medians[level])
