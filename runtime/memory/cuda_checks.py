"""What the CUDA path needs of a machine beside a GPU, and how to get what is missing. Loads no torch.

A driver; a C compiler and Python's headers, with which Triton builds the launchers of its kernels; leave to page-lock
as much memory as the experts take.
"""

import ctypes
import platform
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from runtime.memory.sizes import format_size

COMPILERS = ("gcc", "clang", "cc")
"""Those that Triton looks for."""
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"
_OLDEST_DRIVER = (12, 8)
"""CUDA version of a driver that knows compute capability 12.0."""


@dataclass(frozen=True)
class CudaFacts:
    """None stands for what is not there or can't be known."""

    has_gpu: bool
    """An NVIDIA GPU that the driver or the PCI bus lists."""
    driver_cuda: tuple[int, int] | None
    """Newest CUDA that the driver runs."""
    compiler: str | None
    has_python_headers: bool
    locked_limit_bytes: int | None
    """Most memory that this user may lock; None: no limit."""
    is_wsl: bool

    def problems(self, is_wanted: bool) -> list[str]:
        """One line for each thing that keeps the GPU from being used, with how to get it; none where there is no GPU
        and nobody asks for one."""
        if not self.has_gpu:
            return ["There is no NVIDIA GPU on this machine; set --device cpu."] if is_wanted else []
        found = []
        if self.driver_cuda is None:
            found.append(
                "There is an NVIDIA GPU but no driver for it; install the driver of your distribution (on WSL, the one "
                "for Windows) and check it with nvidia-smi."
            )
        elif self.driver_cuda < _OLDEST_DRIVER:
            found.append(
                f"The NVIDIA driver knows CUDA {_dotted(self.driver_cuda)}, but {_dotted(_OLDEST_DRIVER)} is needed; "
                "update it."
            )
        if self.compiler is None:
            found.append(
                "There is no C compiler, which Triton needs for the GPU's kernels; install one, such as gcc "
                "(apt install gcc, dnf install gcc)."
            )
        if not self.has_python_headers:
            found.append(
                "Python's headers are missing, which Triton needs for the GPU's kernels; install them, such as "
                f"python{sys.version_info.major}.{sys.version_info.minor}-dev."
            )
        return found

    @property
    def pinned_memory(self) -> str:
        """How much host memory the GPU may be given to read where it lies, and how to get more."""
        if self.is_wsl:
            return "about half of WSL's memory; raise it with [wsl2] memory= in .wslconfig"
        return "all that is free; the driver asks no limit of the user"

    def to_json(self) -> dict[str, object]:
        """For a report."""
        return {
            "gpu": self.has_gpu,
            "driver_cuda": None if self.driver_cuda is None else _dotted(self.driver_cuda),
            "c_compiler": self.compiler,
            "python_headers": self.has_python_headers,
            "pinned_memory": self.pinned_memory,
            "locked_memory_limit": "none" if self.locked_limit_bytes is None else format_size(self.locked_limit_bytes),
        }


def examine_cuda() -> CudaFacts:
    """The facts of this machine, now."""
    driver, num_gpus = _driver()
    return CudaFacts(
        has_gpu=num_gpus > 0 or _has_pci_gpu(),
        driver_cuda=driver,
        compiler=next((path for name in COMPILERS if (path := shutil.which(name))), None),
        has_python_headers=Path(sysconfig.get_path("include"), "Python.h").is_file(),
        locked_limit_bytes=_locked_limit(),
        is_wsl="microsoft" in platform.release().lower(),
    )


def _driver() -> tuple[tuple[int, int] | None, int]:
    """The driver's CUDA version and its number of GPUs."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None, 0
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(version)):
        return None, 0
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        count.value = 0
    return (version.value // 1000, version.value % 1000 // 10), count.value


def _has_pci_gpu() -> bool:
    """Whether the bus lists one, with or without a driver."""
    for device in _PCI_DEVICES.glob("*") if _PCI_DEVICES.is_dir() else ():
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _NVIDIA_VENDOR and kind.startswith(_DISPLAY_CLASS):
            return True
    return False


def _locked_limit() -> int | None:
    if sys.platform == "win32":
        return None
    # Not on Windows.
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
