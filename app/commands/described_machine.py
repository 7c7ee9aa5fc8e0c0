"""The machine that a plan is for: this one as it is now, or another one that the options describe."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.model_shelf import free_disk_bytes
from runtime.options import EngineOptions, parse_size

if TYPE_CHECKING:
    from runtime.memory.budget_plan import Machine


def judged_disk_bytes(options: EngineOptions, disk: str | None, models_dir: Path) -> int | None:
    """Free disk that a download may take: `disk` if that is given, else that of this machine; None for another one."""
    if disk is not None:
        return parse_size(disk)
    return free_disk_bytes(models_dir) if options.ram_bytes is None else None


def described_machine(options: EngineOptions) -> "Machine":
    """`--device cuda --vram SIZE` is a machine with such a card, all of it free; `--ram SIZE` so much free memory."""
    # Brings psutil, which those who plan nothing need not wait for.
    from runtime.memory.probe import probe_machine

    if options.device == "cuda" and options.vram_bytes is not None:
        on_cpu = probe_machine(replace(options, device="cpu"))
        machine = replace(on_cpu, device="cuda", vram_free_bytes=options.vram_bytes)
    else:
        machine = probe_machine(options)
    if options.ram_bytes is None:
        return machine
    # More than this machine has can be planned for, too.
    return replace(machine, ram_total_bytes=options.ram_bytes, ram_available_bytes=options.ram_bytes)
