"""Loads a model: opens and checks the folder, plans the memory, then allocates and fills, reporting every phase.

Nothing large is allocated before the plan fits. Owns the order of loading; each part builds itself.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from runtime.cache.page_pool import PagePool
from runtime.cache.sequence_cache import SequenceCache
from runtime.cache.state_pool import StatePool
from runtime.errors import UsageError
from runtime.execute import cache_fitting, overlap, slot_fitting
from runtime.execute.admission import Admission
from runtime.execute.device_memory import CudaMemory, Memory, PlannedMemory, start_cuda
from runtime.execute.device_path import DevicePath, build_device_path, build_experts, choose_level
from runtime.execute.forward import Forward
from runtime.execute.loaded_model import LoadedModel
from runtime.execute.opened_model import OpenedModel, OpenModel, open_folder
from runtime.execute.placement import Placement
from runtime.execute.progress import LoadProgress
from runtime.execute.threads import ThreadPlan
from runtime.execute.tracing import Tracing
from runtime.execute.warm_start import WarmStart
from runtime.execute.warm_up import grow_heap, warm_up
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.mapped_store import MappedStore
from runtime.experts.pinning import page_aligned, pin
from runtime.experts.routed import SlotExperts
from runtime.experts.store import PinnedStore
from runtime.kernels.torch_ops.experts import ExpertCompute
from runtime.layers.decoder import Decoder
from runtime.memory.budget import fewest_cached_records, plan
from runtime.memory.budget_plan import BudgetPlan, Machine
from runtime.memory.probe import probe_machine
from runtime.memory.residents import ResidentFile
from runtime.memory.sizes import LOGITS_TILE_BYTES, scores_bytes
from runtime.options import EngineOptions
from runtime.protocol import Event
from runtime.record import RecordLayout
from runtime.schedule.scheduler import Scheduler
from runtime.spec import ModelSpec
from runtime.telemetry.meter import Meter
from runtime.telemetry.process_memory import resident_bytes

END_OF_TURN = "<|im_end|>"
_CPU_CHUNK_TARGET_S = 0.15
"""On a CPU, a chat that decodes waits about so long for a chunk of another request. On a GPU a shorter chunk is hardly
faster, because it moves nearly as many experts."""
_logger = logging.getLogger("hotslot.engine")


def load_model(
    options: EngineOptions,
    base_bytes: tuple[int, int],
    send: Callable[[Event], None],
    placement: Placement | None = None,
    open_model: OpenModel = open_folder,
) -> LoadedModel:
    """Load the options' model. `base_bytes` are what this process held before, and what of it is mapped from libraries.

    `placement` overrides the device's own; `open_model` says what a model's path means. Raises CheckpointError for a
    folder that can't be used, BudgetError for a machine it does not fit, UsageError for options that no model could be
    loaded with.
    """
    started_s, bytes_at_start = time.monotonic(), resident_bytes()
    _check(options)
    progress = LoadProgress(send)
    progress.report("opening", 0, 1)
    folder = open_model(options.model_path)
    progress.report("opening", 1, 1)
    spec = folder.spec
    if options.kv == "host" and spec.indexer is None:
        raise UsageError(f"{spec.name} reads all keys and values for every token; leave --kv at device.")
    machine, notice = _usable_machine(options, base_bytes)
    budget = plan(spec, machine, options).require()
    context_bytes = start_cuda(machine.vram_free_bytes) if machine.device == "cuda" else 0
    placement = placement or Placement.of(machine.device, options, budget.has_wide_kv)
    threads = ThreadPlan.build(spec, machine.num_cores, options.num_threads)
    torch.set_num_threads(threads.prefill)
    device = placement.device
    # On a GPU the slots get what is left, unless their number was given.
    fits_slots = device.type == "cuda" and options.num_slots is None and machine.vram_free_bytes is not None
    weights = _Weights(
        folder, slot_fitting.with_fewest_slots(budget, spec) if fits_slots else budget, options, progress, placement
    )
    decoder, experts = weights.load()
    if fits_slots:
        slot_fitting.begin_measuring()
    pages = _pages(spec, budget, placement)
    states = StatePool(spec, budget.num_state_rows, device)
    decision = overlap.applies(
        options.overlap,
        device.type,
        is_decode=True,
        num_gpus=1,
        experts_on_gpu=placement.decodes_on_device,
        experts_in_memory=not budget.is_store_mapped,
    )
    device_path: DevicePath | None = None
    if isinstance(experts, DeviceExperts):
        device_path = build_device_path(decoder, pages, states, experts, budget, placement, decision)
    decode_steps = None if device_path is None else device_path.steps
    streams = None if device_path is None else device_path.streams
    forward = Forward(decoder, pages, states, experts, device, threads, decode_steps, streams)
    _warm_up(forward, experts, spec, options, budget, progress)
    if isinstance(experts, DeviceExperts) and device_path is not None:
        if fits_slots:
            held = slot_fitting.held_memory(machine.vram_free_bytes or 0, context_bytes, budget)
            budget, context_bytes = slot_fitting.fit_slots(experts, budget, spec, options, held), held.driver_bytes
        decision = choose_level(device_path, experts, spec.vocab_size, decision)
    if device.type == "cuda" and isinstance(experts.store, MappedStore):
        others = base_bytes[0] - experts.store.num_bytes + resident_bytes() - bytes_at_start
        budget = cache_fitting.fit_cache(experts.store, budget, spec, machine, others)
    held_bytes = decoder.dense_bytes + experts.pool.nbytes + pages.num_bytes + states.num_bytes
    memory: Memory = PlannedMemory(budget.limit_bytes, held_bytes + budget.workspace_bytes)
    if device.type == "cuda":
        memory = CudaMemory(budget.limit_bytes, context_bytes)
    load_s = time.monotonic() - started_s
    if folder.notice is not None:
        _logger.warning("%s", folder.notice)
    _logger.info("loaded %s in %.2f s, %d slots", spec.name, load_s, budget.num_slots)
    return LoadedModel(
        spec=spec,
        options=options,
        device_name=device.type,
        context_tokens=budget.context_tokens,
        forward=forward,
        experts=experts,
        scheduler=_scheduler(budget, options),
        admission=_admission(folder, budget.context_tokens),
        memory=memory,
        overlap=decision,
        tokenizer=folder.tokenizer,
        template=folder.template,
        default_sampling=folder.default_sampling,
        load_s=load_s,
        meter=Meter(),
        tracing=Tracing(spec, experts, decode_steps),
        warm_start=_warm_start(folder, options, budget, experts, forward),
        notice=" ".join(filter(None, (folder.notice, notice, weights.notice))),
    )


def _warm_start(
    folder: OpenedModel,
    options: EngineOptions,
    budget: BudgetPlan,
    experts: SlotExperts | DeviceExperts,
    forward: Forward,
) -> WarmStart:
    """What the last engine left for this model waits to be brought back."""
    file: ResidentFile | None = None
    if options.starts_warm and options.cache_dir is not None and folder.fingerprint:
        cache = experts.cache
        file = ResidentFile.of(options.cache_dir, folder.fingerprint, cache.num_layers, cache.num_experts)
    warm_start = WarmStart(file, experts, options.policy, budget.slot_bytes, forward.between_steps)
    warm_start.begin()
    return warm_start


def _pages(spec: ModelSpec, budget: BudgetPlan, placement: Placement) -> PagePool:
    if not placement.is_kv_on_host:
        return PagePool(spec, budget.num_pages, placement.device, placement.kv)
    slabs: list[Tensor] = []

    def host_memory(num_bytes: int) -> Tensor:
        slabs.append(page_aligned(1, num_bytes))
        return slabs[-1].view(-1)

    pages = PagePool(spec, budget.num_pages, placement.device, placement.kv, host_memory)
    if placement.device.type == "cuda":
        # After they were zeroed: locked pages are slow to fill.
        pin(slabs, pages)
    return pages


def _scheduler(budget: BudgetPlan, options: EngineOptions) -> Scheduler:
    cache = SequenceCache(budget.num_pages, budget.num_state_rows)
    target_s = _CPU_CHUNK_TARGET_S if budget.device == "cpu" else None
    return Scheduler(
        cache, options.chunk_tokens, budget.max_sequences, options.side_call_share, target_s, budget.num_step_chunks
    )


def _check(options: EngineOptions) -> None:
    if options.chunk_tokens < 1:
        raise UsageError(f"A prefill step of {options.chunk_tokens} tokens makes no progress; use 1 or more.")
    if options.num_threads is not None and options.num_threads < 1:
        raise UsageError(f"{options.num_threads} threads can't compute; use 1 or more.")


def _usable_machine(options: EngineOptions, base_bytes: tuple[int, int]) -> tuple[Machine, str]:
    """The machine, and what to say about it: a GPU is used only by a torch that was built for it.

    Raises UsageError where one is asked for in vain.
    """
    machine = probe_machine(options, *base_bytes)
    if machine.device == "cpu" or torch.cuda.is_available():
        return machine, ""
    problem = f"torch {torch.__version__} can't use the GPU: install a torch built for CUDA, or check its driver"
    if options.device == "cuda":
        raise UsageError(f"{problem}; or set --device cpu.")
    return probe_machine(replace(options, device="cpu"), *base_bytes), f"{problem}. Computing on the CPU."


def _admission(folder: OpenedModel, context_tokens: int) -> Admission:
    """Requests end at the checkpoint's own stop ids and at the end of a chat turn."""
    spec, tokenizer = folder.spec, folder.tokenizer
    stop_ids = set(spec.eos_token_ids)
    if tokenizer is not None and END_OF_TURN in tokenizer.special_ids:
        stop_ids.add(tokenizer.special_ids[END_OF_TURN])
    return Admission(tokenizer, folder.template, frozenset(stop_ids), context_tokens, spec.vocab_size)


class _Weights:
    """Reads dense weights and experts from the mapped files, which are let go afterwards."""

    def __init__(
        self,
        folder: OpenedModel,
        budget: BudgetPlan,
        options: EngineOptions,
        progress: LoadProgress,
        placement: Placement,
    ) -> None:
        self._folder = folder
        self._budget = budget
        self._options = options
        self._progress = progress
        self._placement = placement
        self.notice = ""
        """What is to be said of where experts are read from."""

    def load(self) -> tuple[Decoder, SlotExperts | DeviceExperts]:
        decoder, experts = self._dense(), self._experts()
        self._folder.tensors.release_pages()
        return decoder, experts

    def _dense(self) -> Decoder:
        total_bytes = self._budget.dense_bytes
        self._progress.report("dense", 0, total_bytes)
        decoder = self._folder.decoder_type.build(
            self._folder.spec,
            self._folder.tensors,
            self._folder.names,
            self._placement.device,
            self._placement.weights,
            self._budget.is_ngram_table_mapped,
            lambda done_bytes: self._progress.report("dense", min(done_bytes, total_bytes - 1), total_bytes),
            self._placement.residual_weights,
            is_fp8=self._placement.is_dense_fp8,
        )
        self._progress.report("dense", total_bytes, total_bytes)
        return decoder

    def _experts(self) -> SlotExperts | DeviceExperts:
        def report(done_bytes: int, total_bytes: int) -> None:
            self._progress.report("experts", done_bytes, total_bytes)

        store: PinnedStore | MappedStore
        with _one_thread():
            store = self._mapped_store(report) if self._budget.is_store_mapped else self._folder.fill_store(report)
        self._progress.report("slots", 0, self._budget.slots_bytes)
        experts = self._in_slots(store)
        self._progress.report("slots", self._budget.slots_bytes, self._budget.slots_bytes)
        return experts

    def _mapped_store(self, report: Callable[[int, int], None]) -> MappedStore:
        spec, num_cached = self._folder.spec, self._budget.num_cached_records
        if self._placement.device.type == "cuda":
            # The process grows until the warm-up has run; then the cache gets what is left.
            num_cached = fewest_cached_records(spec, self._budget.num_ring_slots)
        reader, self.notice = self._folder.open_records(self._options.cache_dir, report)
        _logger.info("%d of the experts' records in memory, others from %s", num_cached, reader.source)
        return MappedStore(reader, RecordLayout.of_layers(spec), spec.moe.num_experts, num_cached)

    def _in_slots(self, store: PinnedStore | MappedStore) -> SlotExperts | DeviceExperts:
        spec, layouts = self._folder.spec, store.layouts
        if self._placement.decodes_on_device:
            return build_experts(spec, store, self._budget, self._options, self._placement)
        computes = {layout: ExpertCompute(layout) for layout in set(layouts)}
        return SlotExperts.build(
            store,
            [computes[layout] for layout in layouts],
            num_slots=self._budget.num_slots,
            num_choices=spec.moe.num_experts_per_token,
            max_rows=self._budget.max_sequences,
            policy=self._options.policy,
            num_ring_slots=self._budget.num_ring_slots,
            device=self._placement.device,
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Packing copies a few hundred KiB at a time, which two threads do slower than one: 4.1 s for four layers of
    Qwen3-Next's width from an empty page cache, and 5.3 s on two."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _warm_up(
    forward: Forward,
    experts: SlotExperts | DeviceExperts,
    spec: ModelSpec,
    options: EngineOptions,
    budget: BudgetPlan,
    progress: LoadProgress,
) -> None:
    """The first answer pays for no lazy initialisation, and finds every slot empty."""
    progress.report("warmup", 0, 1)
    scores = scores_bytes(spec, options.chunk_tokens, budget.context_tokens)
    if budget.device == "cpu":
        grow_heap(budget.workspace_bytes - scores)
    warm_up(forward, options.chunk_tokens, budget.context_tokens, LOGITS_TILE_BYTES // (4 * spec.vocab_size))
    experts.clear()
    progress.report("warmup", 1, 1)
