"""`hotslot plan`: where the memory goes, line by line, before anything is loaded."""

import argparse
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.context import CommandContext
from app.commands.options import add_memory_options
from app.console import format_bytes
from app.errors import ModelNameError
from app.library import find_remote
from runtime.options import EngineOptions
from runtime.spec import ModelSpec

if TYPE_CHECKING:
    from runtime.memory.budget import BudgetPlan, Machine


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("plan", help="show what a model needs and whether it fits", allow_abbrev=False)
    parser.add_argument(
        "model",
        metavar="M",
        nargs="?",
        default=argparse.SUPPRESS,
        help="'demo', a name in the models folder or the catalogue, or a model folder",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_memory_options(parser)
    parser.set_defaults(run=run)


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    # Brings psutil, which the other commands need not wait for.
    from runtime.memory.budget import plan

    context.tell_settings_notice()
    folder, spec, notice = _model(context)
    options = context.settings.engine_options(folder)
    budget = plan(spec, _machine(options), options)
    if notice is not None:
        context.console.notice(notice)
    if arguments.json:
        described = {"model": spec.name, "notice": notice, "device": budget.device}
        context.console.print_json({**described, **_to_json(budget)})
    else:
        _print_plan(context, budget)
    if not budget.fits:
        context.console.notice(budget.reason)
    return 0 if budget.fits else 1


def _model(context: CommandContext) -> tuple[Path, ModelSpec, str | None]:
    """Folder, shapes and what is to be said of them: measured from a folder, else the catalogue's."""
    # Brings numpy, which the other commands need not wait for.
    from runtime.checkpoint.facts import open_checkpoint

    try:
        folder = context.model_path()
    except ModelNameError:
        remote = find_remote(context.settings.model, context.locations)
        if remote is None or remote.spec is None:
            raise
        notice = f"{remote.name} is not on this machine; planned from its published shapes, dense weights as bf16"
        return remote.places.folder, remote.spec, notice
    checkpoint = open_checkpoint(folder)
    return folder, checkpoint.spec, checkpoint.notice


def _machine(options: EngineOptions) -> "Machine":
    """This machine, or the one that --device cuda, --vram and --ram describe. A CPU engine's own size is measured."""
    from runtime.client import child_environment
    from runtime.memory.probe import probe_machine
    from runtime.memory.process_base import measure_process_base

    if options.device == "cuda" and options.vram_bytes is not None:
        machine = replace(
            probe_machine(replace(options, device="cpu")), device="cuda", vram_free_bytes=options.vram_bytes
        )
    else:
        machine = probe_machine(options)
    if machine.device == "cpu":
        held, mapped = measure_process_base(child_environment())
        machine = replace(machine, process_base_bytes=held, library_bytes=mapped)
    if options.ram_bytes is None:
        return machine
    # More than this machine has can be planned for, too.
    return replace(machine, ram_total_bytes=options.ram_bytes, ram_available_bytes=options.ram_bytes)


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


def _print_plan(context: CommandContext, budget: "BudgetPlan") -> None:
    rows = [(line.name, format_bytes(line.num_bytes), line.why) for line in budget.lines]
    context.console.print_table([("part", "size", "why"), *rows], right=(1,))
    slots = f"{budget.num_slots} expert slots of {format_bytes(budget.slot_bytes)}"
    context.console.print(
        f"{slots}, {format_bytes(budget.total_bytes)} in all, headroom {format_bytes(budget.headroom_bytes)}, "
        f"host memory {format_bytes(budget.host_bytes)}"
    )
