"""Machines with less memory than experts: options that make the planner leave some on the disk."""

from dataclasses import replace

import pytest

from runtime.checkpoint.facts import read_facts
from runtime.execute import engine
from runtime.memory.budget import RAM_MARGIN_BYTES, plan
from runtime.memory.probe import probe_machine
from runtime.options import EngineOptions

BASE_BYTES = 400 << 20
"""What an engine is made to believe that the test's process held before: the true figure moves with all else in it."""


def fix_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of this process plan with BASE_BYTES."""
    monkeypatch.setattr(engine, "resident_bytes", lambda: BASE_BYTES)
    monkeypatch.setattr(engine, "library_bytes", lambda: BASE_BYTES // 4)


def limit_ram(options: EngineOptions, spare_bytes: int) -> EngineOptions:
    """So little memory that `spare_bytes` are left for the host cache beside its fewest records."""
    return replace(options, ram_bytes=least_ram(options, BASE_BYTES, BASE_BYTES // 4) + spare_bytes)


def least_ram(options: EngineOptions, process_base_bytes: int, library_bytes: int) -> int:
    """The least memory that an engine runs in, of which `process_base_bytes` are its own before it loads a model."""
    machine = probe_machine(options, process_base_bytes, library_bytes)
    least = plan(read_facts(options.model_path), replace(machine, ram_available_bytes=0), options)
    assert not least.fits
    return least.host_bytes + RAM_MARGIN_BYTES + (least.device_bytes if machine.device == "cpu" else 0)
