"""The shipped demo model, which every engine test runs on."""

from pathlib import Path

import pytest

DEMO_FOLDER = Path("/tmp/demo-model")


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    assert (DEMO_FOLDER / "model.safetensors").is_file(), "the demo model is part of the repository"
    return DEMO_FOLDER
