"""Tests of this folder need an NVIDIA GPU, carry the mark `gpu` and skip themselves elsewhere."""

from pathlib import Path

import pytest
import torch

from tests.support.triton_mode import has_gpu

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hooks of a folder's conftest see all tests of the session."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not has_gpu():
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The GPU."""
    return torch.device("cuda")
