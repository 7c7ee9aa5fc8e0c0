"""The shipped demo model, one engine for all tests of a module."""

from pathlib import Path

import pytest
import torch

from runtime.options import EngineOptions
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver
from tests.support.tiny_models import random_model, save_plain, tiny_config
from tests.support.tiny_tokenizer import write_tokenizer


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    assert (DEMO_FOLDER / "model.safetensors").is_file(), "the demo model is part of the repository"
    return DEMO_FOLDER


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few thousand weights that chats."""
    folder = tmp_path_factory.mktemp("tiny")
    config = tiny_config(vocab_size=480, num_hidden_layers=2, ple_layer_ids=[1], hidden_size=32, layer_types=[
        "linear_attention", "indexed_attention"])  # fmt: skip
    save_plain(random_model(config), folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def driver(demo_folder: Path) -> EngineDriver:
    options = EngineOptions(demo_folder, num_slots=96, num_threads=1, context_tokens=2048, chunk_tokens=64)
    return EngineDriver(options)
