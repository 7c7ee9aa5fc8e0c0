"""Triton kernels against their torch twins: interpreted on a CPU, compiled where there is a GPU.

Interpreted ones may touch no memory but that of their arguments, in every test.
"""

import pytest
import torch

from tests.support.interpreter_memory import InterpreterMemory
from tests.support.triton_mode import has_gpu, kernel_device, mend_interpreter

if not has_gpu():
    mend_interpreter()
    InterpreterMemory().install()


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the kernels run; inputs and the twin's results belong there too."""
    return torch.device(kernel_device())
