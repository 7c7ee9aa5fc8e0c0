"""`hotslot plan`: where the memory goes, line by line, before anything is loaded."""

import argparse
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.context import CommandContext
from app.commands.described_machine import described_machine, judged_disk_bytes
from app.commands.options import add_disk_option, add_memory_options
from app.console import format_bytes
from app.errors import ModelNameError
from app.figures import tok_s_text
from app.fit import Fit, FitJudge
from app.library import bytes_to_fetch, find_remote
from runtime.memory.disk_rate import quick_disk_rate
from runtime.memory.rates import MachineRates, RatesQuestion, keep_rates, known_rates, measure_rates
from runtime.spec import ModelSpec

if TYPE_CHECKING:
    from runtime.memory.budget import BudgetPlan, Machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="M",
        nargs="?",
        default=argparse.SUPPRESS,
        help="'demo', a name in the models folder or the catalogue, or a model folder",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_memory_options(parser)
    add_disk_option(parser)
    parser.set_defaults(run=run)


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    # Brings psutil, which the other commands need not wait for.
    from runtime.memory.budget import plan

    context.tell_settings_notice()
    model = _model(context)
    options = context.settings.engine_options(model.folder)
    machine = _measured(described_machine(options))
    budget = plan(model.spec, machine, options)
    disk_free_bytes = judged_disk_bytes(options, arguments.disk, context.locations.models_dir)
    rates = _rates(model, machine, context.locations.cache_dir, is_mapped=budget.is_store_mapped)
    judge = FitJudge(
        machine, options, disk_free_bytes=disk_free_bytes, cache_dir=context.locations.cache_dir, rates=rates
    )
    fit = judge.judge_plan(model.spec, budget, model.to_fetch_bytes, model.fingerprint)
    if model.notice is not None:
        context.console.notice(model.notice)
    if arguments.json:
        described = {"model": model.spec.name, "notice": model.notice, "device": budget.device}
        disk = {"to_fetch_bytes": fit.to_fetch_bytes, "disk_free_bytes": disk_free_bytes}
        context.console.print_json({**described, **_to_json(budget), **disk, **_verdict_json(fit)})
    else:
        _print_plan(context, budget, fit)
    if not fit.fits:
        context.console.notice(fit.reason)
    return 0 if fit.fits else 1


@dataclass(frozen=True)
class _Model:
    """What is planned: measured from a folder, else as the catalogue says; `notice` is what is to be said of it."""

    folder: Path
    spec: ModelSpec
    notice: str | None
    fingerprint: str = ""
    to_fetch_bytes: int = 0
    weight_files: tuple[Path, ...] = ()
    """Those that are on the disk."""


def _model(context: CommandContext) -> _Model:
    # Brings numpy, which the other commands need not wait for.
    from runtime.checkpoint.facts import open_checkpoint
    from runtime.checkpoint.fingerprint import fingerprint

    try:
        folder = context.model_path()
    except ModelNameError:
        remote = find_remote(context.settings.model, context.locations)
        if remote is None or remote.spec is None:
            raise
        notice = f"{remote.name} is not on this machine; planned from its published shapes, dense weights as bf16"
        return _Model(remote.places.folder, remote.spec, notice, to_fetch_bytes=bytes_to_fetch(remote))
    checkpoint = open_checkpoint(folder)
    files = checkpoint.files
    return _Model(folder, checkpoint.spec, checkpoint.notice, fingerprint(files), weight_files=files.weight_files)


def _measured(machine: "Machine") -> "Machine":
    """With the size of a CPU's engine, which is measured."""
    from runtime.client import child_environment
    from runtime.memory.process_base import measure_process_base

    if machine.device != "cpu":
        return machine
    held, mapped = measure_process_base(child_environment())
    return replace(machine, process_base_bytes=held, library_bytes=mapped)


def _rates(model: _Model, machine: "Machine", cache_dir: Path, is_mapped: bool) -> MachineRates | None:
    """As measured before, or now; None for a card that this machine doesn't have. The disk that experts will be read
    from is measured every time: it takes a moment, and each model may lie on another."""
    from runtime.client import child_environment
    from runtime.memory.probe import free_vram_bytes

    question = RatesQuestion.of(model.spec, machine.device, machine.num_cores)
    rates = known_rates(question, cache_dir)
    if rates is None and machine.device == "cuda" and free_vram_bytes() is None:
        return None
    disk_bytes_s = quick_disk_rate(model.weight_files, model.spec.weights.record_bytes) if is_mapped else None
    if rates is not None and disk_bytes_s is None:
        return rates
    rates = rates or measure_rates(question, child_environment())
    rates = rates if disk_bytes_s is None else replace(rates, disk_bytes_s=disk_bytes_s)
    keep_rates(question, rates, cache_dir)
    return rates


def _verdict_json(fit: Fit) -> dict[str, Any]:
    """The disk is part of what fits."""
    speed = fit.speed
    return {
        "fits": fit.fits,
        "reason": fit.reason,
        "predicted_tok_s": None if speed is None else round(speed.tok_s, 2),
        "predicted_hit_rate": None if speed is None else round(speed.hit_rate.value, 4),
        "predicted_why": "" if speed is None else speed.why,
    }


def _to_json(budget: "BudgetPlan") -> dict[str, Any]:
    sizes = {field.name: getattr(budget, field.name) for field in fields(budget) if field.name.endswith("_bytes")}
    return {
        "fits": budget.fits,
        "reason": budget.reason,
        "slots": budget.num_slots,
        "context_tokens": budget.context_tokens,
        "is_store_mapped": budget.is_store_mapped,
        "cached_records": budget.num_cached_records,
        "is_ngram_table_mapped": budget.is_ngram_table_mapped,
        **sizes,
    }


def _print_plan(context: CommandContext, budget: "BudgetPlan", fit: Fit) -> None:
    rows = [(line.name, format_bytes(line.num_bytes), line.why) for line in budget.lines]
    context.console.print_table([("part", "size", "why"), *rows], right=(1,))
    slots = f"{budget.num_slots} expert slots of {format_bytes(budget.slot_bytes)}"
    context.console.print(
        f"{slots}, {format_bytes(budget.total_bytes)} in all, headroom {format_bytes(budget.headroom_bytes)}, "
        f"host memory {format_bytes(budget.host_bytes)}"
    )
    if fit.to_fetch_bytes:
        context.console.print(f"{format_bytes(fit.to_fetch_bytes)} are still to be fetched to the disk")
    if fit.speed is not None:
        context.console.print(f"about {tok_s_text(fit.speed.tok_s)}: {fit.speed.why}")
