"""The machine as the plan sees it."""

from pathlib import Path

import pytest

from runtime.errors import UsageError
from runtime.memory.probe import count_cores, free_vram_bytes, probe_machine
from runtime.options import EngineOptions


def test_cpu_machine() -> None:
    machine = probe_machine(EngineOptions(Path("model"), device="cpu"), process_base_bytes=123)
    assert machine.device == "cpu"
    assert machine.vram_free_bytes is None
    assert 0 < machine.ram_available_bytes <= machine.ram_total_bytes
    assert machine.num_cores == count_cores() >= 1
    assert machine.process_base_bytes == 123


def test_cuda_needs_a_gpu() -> None:
    options = EngineOptions(Path("model"), device="cuda")
    if free_vram_bytes() is None:
        with pytest.raises(UsageError, match=r"no NVIDIA GPU.*--device cpu"):
            probe_machine(options)
    else:
        assert (probe_machine(options).vram_free_bytes or 0) > 0


def test_a_ram_limit_makes_the_machine_smaller_and_never_larger() -> None:
    machine = probe_machine(EngineOptions(Path("model"), device="cpu"))
    limited = probe_machine(EngineOptions(Path("model"), device="cpu", ram_bytes=1 << 20))
    assert (limited.ram_total_bytes, limited.ram_available_bytes) == (1 << 20, 1 << 20)
    more = probe_machine(EngineOptions(Path("model"), device="cpu", ram_bytes=machine.ram_total_bytes * 2))
    assert more.ram_total_bytes == machine.ram_total_bytes
