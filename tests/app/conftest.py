"""Places, a store and a Hub of each test's own."""

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from app.environment import Environment
from app.locations import Locations
from app.store.conversations import Store
from tests.support.hub_server import HubServer, Repository, running_hub
from tests.support.small_repository import REPO_ID, small_model


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations.resolve(Environment(tmp_path / "home", False, ""))


@pytest.fixture
def store(locations: Locations) -> Store:
    return Store.open(locations.database_file)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """With one small model. The suite is offline by default; this Hub is on the loopback."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with running_hub() as server:
        server.repositories[REPO_ID] = Repository(small_model())
        yield server
