"""`hotslot doctor`: what a bug report needs to know, without loading torch or a model."""

import argparse
import os
import platform
import sys
from pathlib import Path
from typing import Any

from app.commands.context import CommandContext
from app.errors import HotslotError, StoreError
from app.library import describe_model
from app.store.conversations import Store
from app.version import package_version

PACKAGES = ("hotslot", "torch", "textual", "tokenizers", "safetensors", "numpy", "jinja2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="M", default=argparse.SUPPRESS, help="the model to check")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    report = examine(context)
    problems: list[str] = report["problems"]
    if arguments.json:
        context.console.print_json(report)
    else:
        context.console.print_table([(key, value) for key, value in _flatten(report) if not key.startswith("problems")])
        for problem in problems:
            context.console.notice(problem)
        context.console.print("No problem found." if not problems else f"{len(problems)} to look at, see above.")
    return 1 if problems else 0


def examine(context: CommandContext) -> dict[str, Any]:
    """The report; what is wrong is listed in `problems`, one readable line each."""
    problems = [context.settings_notice] if context.settings_notice else []
    packages = {name: package_version(name) for name in PACKAGES}
    problems += [
        f"{name} is not installed; install Hotslot's dependencies again."
        for name, found in packages.items()
        if found is None and name != "hotslot"
    ]
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": packages,
        "machine": _examine_machine(context, problems),
        "cuda": _examine_cuda(context, problems),
        "paths": _examine_paths(context, problems),
        "terminal": _examine_terminal(context),
        "model": _examine_model(context, problems),
        "problems": problems,
    }


def _examine_machine(context: CommandContext, problems: list[str]) -> dict[str, Any]:
    # Brings psutil, which the other commands need not wait for.
    from runtime.memory.control_groups import group_memory
    from runtime.memory.probe import probe_machine

    options, group = context.settings.engine_options(Path()), group_memory()
    try:
        machine = probe_machine(options)
    except HotslotError as error:
        problems.append(str(error))
        return {}
    return {
        "device": machine.device,
        "vram_free_bytes": machine.vram_free_bytes,
        "ram_total_bytes": machine.ram_total_bytes,
        "ram_available_bytes": machine.ram_available_bytes,
        "ram_limit_bytes": options.ram_bytes,
        "ram_group_limit_bytes": None if group is None else group.limit_bytes,
        "cores": machine.num_cores,
    }


def _examine_cuda(context: CommandContext, problems: list[str]) -> dict[str, Any]:
    # As above.
    from runtime.memory.cuda_checks import examine_cuda

    facts = examine_cuda()
    problems += facts.problems(is_wanted=context.settings.device == "cuda")
    return facts.to_json()


def _examine_paths(context: CommandContext, problems: list[str]) -> dict[str, Any]:
    places = context.locations
    is_store_told = False
    try:
        Store.open(places.database_file).close()
    except StoreError as error:
        problems.append(str(error))
        is_store_told = True
    found = {"settings": places.config_file, "conversations": places.database_file, "log": places.log_file}
    found |= {"models": places.models_dir, "cache": places.cache_dir}
    report = {name: {"path": str(path), "is_writable": _is_writable(path)} for name, path in found.items()}
    problems += [
        f"{name}: {at['path']} can't be written; make it writable or set HOTSLOT_HOME."
        for name, at in report.items()
        if not at["is_writable"] and not (name == "conversations" and is_store_told)
    ]
    return report


def _is_writable(path: Path) -> bool:
    """Whether the path, or the first folder above it that exists, can be written."""
    while not path.exists() and path.parent != path:
        path = path.parent
        if path.exists() and not path.is_dir():
            return False
    return os.access(path, os.W_OK)


def _examine_terminal(context: CommandContext) -> dict[str, Any]:
    return {
        "kind": context.environment.terminal,
        "is_terminal": sys.stdout.isatty(),
        "encoding": sys.stdout.encoding,
        "is_colour_off": context.environment.is_colour_off,
    }


def _examine_model(context: CommandContext, problems: list[str]) -> dict[str, Any]:
    try:
        path = context.model_path()
    except HotslotError as error:
        problems.append(str(error))
        return {"name": context.settings.model, "is_usable": False}
    model = describe_model(context.settings.model, path)
    if model.problem:
        problems.append(model.problem)
    return {"name": model.name, "path": str(path), "is_usable": model.spec is not None}


def _flatten(value: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, item in value.items():
        if isinstance(item, dict):
            rows += _flatten(item, f"{prefix}{key}.")
        else:
            rows.append((prefix + key, "-" if item is None else str(item)))
    return rows
