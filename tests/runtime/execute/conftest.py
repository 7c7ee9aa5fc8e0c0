"""The shipped demo model, one engine for all tests of a module."""

from pathlib import Path

import pytest
import torch

from runtime.options import EngineOptions
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    assert (DEMO_FOLDER / "model.safetensors").is_file(), "the demo model is part of the repository"
    return DEMO_FOLDER


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def driver(demo_folder: Path) -> EngineDriver:
    options = EngineOptions(demo_folder, num_slots=96, num_threads=1, context_tokens=2048, chunk_tokens=64)
    return EngineDriver(options)
