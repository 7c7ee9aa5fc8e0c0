"""The machine as the plan sees it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from runtime.errors import UsageError
from runtime.memory import probe
from runtime.memory.probe import count_cores, free_vram_bytes, probe_machine
from runtime.options import EngineOptions

NVML_OF_TWO_GPUS_AND_A_SLICE = """
#include <string.h>
static const char *names[] = {"GPU-aaaa-1", "GPU-abcd-2", "MIG-cccc-3"};
static int open;
int nvmlInit_v2(void) { open++; return 0; }
int nvmlShutdown(void) { open--; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const char ***gpu) { *gpu = names + index; return index < 2 ? 0 : 6; }
int nvmlDeviceGetUUID(const char **gpu, char *name, unsigned size) { strncpy(name, *gpu, size); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, const char ***gpu) {
    *gpu = names + 2;
    return strcmp(uuid, names[2]) ? 6 : 0;
}
int nvmlDeviceGetMemoryInfo(const char **gpu, unsigned long long *memory) {
    memory[1] = open == 1 ? gpu - names + 1 : 0;
    return 0;
}
"""


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A management library whose GPUs have 1 and 2 bytes free, and a slice 3."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
    subprocess.run(command, input=NVML_OF_TWO_GPUS_AND_A_SLICE.encode(), check=True)
    return library


@pytest.mark.parametrize(
    ("visible", "free_bytes"),
    [
        (None, 1), ("0", 1), ("1", 2), ("1,0", 2), (" 1 , 0", 2), ("GPU-abcd-2", 2), ("GPU-ab,GPU-aa", 2),
        ("MIG-cccc-3", 3), ("MIG-other", None), ("2", None), ("-1", None), ("", None), ("GPU-x", None), ("no", None),
    ],
)  # fmt: skip
def test_free_memory_is_that_of_the_gpu_that_torch_uses(
    two_gpus: Path, visible: str | None, free_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "NVML_NAMES", (str(two_gpus),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert free_vram_bytes() == free_bytes


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
