"""How Triton kernels run in tests: on the GPU where there is one, else interpreted on CPU tensors.

Triton decides when it is imported, so `interpret_without_gpu` must run before anything imports it.
"""

import ctypes
import os
from functools import cache
from typing import Any


@cache
def has_gpu() -> bool:
    """Whether the NVIDIA driver finds a GPU. Asked without torch, which most test files never load."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    num_gpus = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(num_gpus)) == 0 and num_gpus.value > 0


def interpret_without_gpu() -> None:
    """Child processes inherit the choice."""
    if not has_gpu():
        os.environ["TRITON_INTERPRET"] = "1"


def kernel_device() -> str:
    """The device on which this process can run Triton kernels."""
    return "cuda" if has_gpu() else "cpu"


def mend_interpreter() -> None:
    """Lets interpreted kernels loop up to a number of the device: Triton 3.6 reads it in a way that NumPy 2.4 ended."""
    # Here and not above: importing Triton fixes its mode.
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor: type, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_tensor_and_index
