"""The machine as the plan sees it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from runtime.errors import UsageError
from runtime.memory import probe
from runtime.memory.control_groups import GroupMemory, group_memory
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


def test_a_control_group_makes_the_machine_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "group_memory", lambda: GroupMemory(2 << 20, 1 << 20))
    limited = probe_machine(EngineOptions(Path("model"), device="cpu"))
    assert (limited.ram_total_bytes, limited.ram_available_bytes) == (2 << 20, 1 << 20)
    less = probe_machine(EngineOptions(Path("model"), device="cpu", ram_bytes=1 << 19))
    assert (less.ram_total_bytes, less.ram_available_bytes) == (1 << 19, 1 << 19)


def write_group(folder: Path, names: tuple[str, str], limit: int | str, usage: int, stat: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{stat}\nfile 7\n")


def test_every_group_above_a_process_counts(tmp_path: Path) -> None:
    root, membership, names = tmp_path / "groups", tmp_path / "membership", ("memory.max", "memory.current")
    assert group_memory(root, membership) is None
    membership.write_text("0::/user.slice/job.scope\n")
    assert group_memory(root, membership) is None
    write_group(root / "user.slice" / "job.scope", names, "max", 10, "inactive_file 3")
    assert group_memory(root, membership) is None
    write_group(root / "user.slice", names, 1000, 400, "inactive_file 200\nactive_file 100")
    assert group_memory(root, membership) == GroupMemory(1000, 900)
    write_group(root / "user.slice" / "job.scope", names, 500, 450, "inactive_file 0")
    assert group_memory(root, membership) == GroupMemory(500, 50)
    # A group may hold more than a limit that was lowered later.
    write_group(root / "user.slice" / "job.scope", names, 500, 900, "inactive_file 100")
    assert group_memory(root, membership) == GroupMemory(500, 0)


def test_the_groups_of_version_1_and_those_of_a_container(tmp_path: Path) -> None:
    root, membership = tmp_path / "groups", tmp_path / "membership"
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    # The path is the host's, which a container does not see; its own group is the root.
    membership.write_text("5:cpu,cpuacct:/a\n4:memory:/docker/0123\n0::/\n")
    write_group(root / "memory", names, 9223372036854771712, 10, "total_inactive_file 0")
    assert group_memory(root, membership) is None
    write_group(root / "memory", names, 2000, 1500, "inactive_file 1\ntotal_inactive_file 500\ntotal_active_file 100")
    assert group_memory(root, membership) == GroupMemory(2000, 1100)
