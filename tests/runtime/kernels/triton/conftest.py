"""Triton kernels against their torch twins: interpreted on a CPU, compiled where there is a GPU."""

import pytest
import torch

from tests.support.triton_mode import has_gpu, kernel_device, mend_interpreter

if not has_gpu():
    mend_interpreter()


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the kernels run; inputs and the twin's results belong there too."""
    return torch.device(kernel_device())
