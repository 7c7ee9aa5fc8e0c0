"""Looks at the machine: main memory, cores, and a GPU's free memory through NVIDIA's management library. No torch."""

import ctypes
import os
import sys

import psutil

from runtime.errors import UsageError
from runtime.memory.budget_plan import LIBRARY_BYTES, PROCESS_BASE_BYTES, Machine
from runtime.memory.control_groups import group_memory
from runtime.options import EngineOptions

_UUID_BYTES = 96
NVML_NAMES = ("libnvidia-ml.so.1", "nvml.dll")


class _NvmlMemory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def probe_machine(
    options: EngineOptions, process_base_bytes: int = PROCESS_BASE_BYTES, library_bytes: int = LIBRARY_BYTES
) -> Machine:
    """The machine as it is now, with the device that the options ask for ('auto': a GPU if there is one).

    The engine gives what it measured of its own process; elsewhere typical sizes stand in.

    Raises UsageError where a GPU is asked for and none can be used.
    """
    vram_free_bytes = None if options.device == "cpu" else free_vram_bytes()
    if options.device == "cuda" and vram_free_bytes is None:
        raise UsageError(
            "there is no NVIDIA GPU that can be used; set --device cpu, or check the driver with nvidia-smi"
        )
    memory = psutil.virtual_memory()
    total_bytes, available_bytes = int(memory.total), int(memory.available)
    group = group_memory()
    if group is not None:
        total_bytes, available_bytes = min(total_bytes, group.limit_bytes), min(available_bytes, group.free_bytes)
    total_bytes = min(total_bytes, options.ram_bytes or sys.maxsize)
    return Machine(
        device="cpu" if vram_free_bytes is None else "cuda",
        vram_free_bytes=vram_free_bytes,
        ram_total_bytes=total_bytes,
        ram_available_bytes=min(available_bytes, total_bytes),
        num_cores=count_cores(),
        process_base_bytes=process_base_bytes,
        library_bytes=library_bytes,
    )


def count_cores() -> int:
    """Physical cores this process may use: the hyperthreads of one core share its arithmetic."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))


def free_vram_bytes() -> int | None:
    """Free memory of the GPU that torch calls the first, or None where there is no driver or no such GPU."""
    library = _load_nvml()
    if library is None or library.nvmlInit_v2() != 0:
        return None
    try:
        handle, memory = _visible_gpu(library), _NvmlMemory()
        if handle is None or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
            return None
        return int(memory.free)
    finally:
        library.nvmlShutdown()


def _visible_gpu(library: ctypes.CDLL) -> ctypes.c_void_p | None:
    """Handle of the first of CUDA_VISIBLE_DEVICES: an index, or an identity that may be cut short; None for no GPU.

    An index counts as NVML does, by PCI address. CUDA counts so where all GPUs are alike or CUDA_DEVICE_ORDER says so.
    """
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES)
    if wanted.startswith("MIG-"):
        return handle if library.nvmlDeviceGetHandleByUUID(wanted.encode(), ctypes.byref(handle)) == 0 else None
    index = 0
    while library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
        library.nvmlDeviceGetUUID(handle, name, _UUID_BYTES)
        if wanted == str(index) or (wanted.startswith("GPU-") and name.value.startswith(wanted.encode())):
            return handle
        index += 1
    return None


def _load_nvml() -> ctypes.CDLL | None:
    for name in NVML_NAMES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
