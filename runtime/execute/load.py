"""Loads a model: opens and checks the folder, plans the memory, then allocates and fills, reporting every phase.

Nothing large is allocated before the plan fits. Owns the order of loading; each part builds itself.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from runtime.cache.page_pool import PagePool
from runtime.cache.sequence_cache import SequenceCache
from runtime.cache.state_pool import StatePool
from runtime.checkpoint.expert_source import ExpertSource
from runtime.checkpoint.facts import Checkpoint, open_checkpoint
from runtime.checkpoint.tensors import TensorSource
from runtime.errors import UsageError
from runtime.execute import overlap
from runtime.execute.admission import Admission
from runtime.execute.forward import Forward
from runtime.execute.loaded_model import DeviceMemory, LoadedModel
from runtime.execute.progress import LoadProgress
from runtime.execute.sampling_defaults import read_sampling_defaults
from runtime.execute.threads import ThreadPlan
from runtime.execute.warm_up import warm_up
from runtime.experts.routed import SlotExperts
from runtime.experts.store import PinnedStore
from runtime.kernels.torch_ops.experts import ExpertCompute
from runtime.layers.decoder import Decoder
from runtime.memory.budget import plan
from runtime.memory.budget_plan import BudgetPlan
from runtime.memory.probe import probe_machine
from runtime.options import EngineOptions
from runtime.protocol import Event
from runtime.record import RecordLayout
from runtime.schedule.scheduler import Scheduler
from runtime.telemetry.meter import Meter
from runtime.text.chat_template import ChatTemplate
from runtime.text.tokenizer import FILE_NAME as TOKENIZER_FILE
from runtime.text.tokenizer import Tokenizer

END_OF_TURN = "<|im_end|>"
_logger = logging.getLogger("hotslot.engine")


def load_model(options: EngineOptions, base_rss_bytes: int, send: Callable[[Event], None]) -> LoadedModel:
    """Load the options' model. `base_rss_bytes` is what this process held before it began.

    Raises CheckpointError for a folder that can't be used and BudgetError for a machine it does not fit.
    """
    started_s = time.monotonic()
    _check(options)
    progress = LoadProgress(send)
    progress.report("opening", 0, 1)
    checkpoint = open_checkpoint(options.model_path)
    spec, folder = checkpoint.spec, checkpoint.files.folder
    tokenizer, template = _load_text(folder)
    default_sampling = read_sampling_defaults(folder)
    progress.report("opening", 1, 1)

    machine = probe_machine(replace(options, device="cpu"), base_rss_bytes)
    budget = plan(spec, machine, options).require()
    device = torch.device(machine.device)
    threads = ThreadPlan.build(spec, machine.num_cores, options.num_threads)
    torch.set_num_threads(threads.prefill)

    source = TensorSource(checkpoint.files)
    decoder = _load_dense(checkpoint, source, device, budget, progress)
    experts = _load_experts(checkpoint, source, device, options, budget, progress)
    pages = PagePool(spec, budget.num_pages, device, torch.float32)
    states = StatePool(spec, budget.num_state_rows, device)
    source.release_pages()
    forward = Forward(decoder, pages, states, experts, device, threads)
    progress.report("warmup", 0, 1)
    warm_up(forward, options.chunk_tokens, budget.num_pages)
    experts.clear()
    progress.report("warmup", 1, 1)

    held_bytes = decoder.dense_bytes + experts.pool.nbytes + pages.num_bytes + states.num_bytes
    memory = DeviceMemory(budget.limit_bytes, held_bytes + budget.workspace_bytes)
    scheduler = Scheduler(SequenceCache(budget.num_pages, budget.num_state_rows), options.chunk_tokens)
    stop_ids = {*spec.eos_token_ids}
    if tokenizer is not None and END_OF_TURN in tokenizer.special_ids:
        stop_ids.add(tokenizer.special_ids[END_OF_TURN])
    load_s = time.monotonic() - started_s
    _logger.info("loaded %s in %.2f s, %d slots", spec.name, load_s, budget.num_slots)
    return LoadedModel(
        spec=spec,
        options=options,
        device_name=machine.device,
        context_tokens=budget.context_tokens,
        forward=forward,
        experts=experts,
        scheduler=scheduler,
        admission=Admission(tokenizer, template, frozenset(stop_ids), budget.context_tokens, spec.vocab_size),
        memory=memory,
        overlap=overlap.applies(options.overlap, machine.device, is_decode=True, num_gpus=0, experts_on_gpu=False),
        tokenizer=tokenizer,
        template=template,
        default_sampling=default_sampling,
        load_s=load_s,
        meter=Meter(),
    )


def _check(options: EngineOptions) -> None:
    """Refuse options that no model could be loaded with."""
    if options.device == "cuda":
        raise UsageError("This release computes on the CPU only; leave the device at auto or set it to cpu.")
    if options.chunk_tokens < 1:
        raise UsageError(f"A prefill step of {options.chunk_tokens} tokens makes no progress; use 1 or more.")
    if options.num_threads is not None and options.num_threads < 1:
        raise UsageError(f"{options.num_threads} threads can't compute; use 1 or more.")


def _load_dense(
    checkpoint: Checkpoint, source: TensorSource, device: torch.device, budget: BudgetPlan, progress: LoadProgress
) -> Decoder:
    def report(done_bytes: int) -> None:
        progress.report("dense", min(done_bytes, budget.dense_bytes - 1), budget.dense_bytes)

    progress.report("dense", 0, budget.dense_bytes)
    decoder = Decoder.build(
        checkpoint.spec, source, checkpoint.names, device, torch.float32, budget.is_ngram_table_mapped, report
    )
    progress.report("dense", budget.dense_bytes, budget.dense_bytes)
    return decoder


def _load_experts(
    checkpoint: Checkpoint,
    source: TensorSource,
    device: torch.device,
    options: EngineOptions,
    budget: BudgetPlan,
    progress: LoadProgress,
) -> SlotExperts:
    spec, layouts = checkpoint.spec, RecordLayout.of_layers(checkpoint.spec)

    def report(done_bytes: int, total_bytes: int) -> None:
        progress.report("experts", done_bytes, total_bytes)

    store = PinnedStore.fill(ExpertSource(source, spec, checkpoint.names), layouts, spec.moe.num_experts, report)
    pool_bytes = budget.num_slots * budget.slot_bytes
    computes = {layout: ExpertCompute(layout) for layout in set(layouts)}
    progress.report("slots", 0, pool_bytes)
    experts = SlotExperts.build(
        store,
        [computes[layout] for layout in layouts],
        num_slots=budget.num_slots,
        num_choices=spec.moe.num_experts_per_token,
        policy=options.policy,
        num_ring_slots=budget.num_ring_slots,
        device=device,
    )
    progress.report("slots", pool_bytes, pool_bytes)
    return experts


def _load_text(folder: Path) -> tuple[Tokenizer | None, ChatTemplate | None]:
    """None for what the folder does not have; such a model can still score."""
    if not (folder / TOKENIZER_FILE).exists():
        return None, None
    tokenizer = Tokenizer.load(folder)
    return tokenizer, ChatTemplate.load(folder, tokenizer)
