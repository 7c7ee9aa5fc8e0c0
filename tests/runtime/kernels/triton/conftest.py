"""Triton kernels against their torch twins: interpreted on a CPU, compiled where there is a GPU."""

import pytest
import torch

from tests.support.triton_mode import kernel_device


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the kernels run; inputs and the twin's results belong there too."""
    return torch.device(kernel_device())
