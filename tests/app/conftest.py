"""Places and a store of each test's own."""

from pathlib import Path

import pytest

from app.environment import Environment
from app.locations import Locations
from app.store.conversations import Store


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations.resolve(Environment(tmp_path / "home", False, ""))


@pytest.fixture
def store(locations: Locations) -> Store:
    return Store.open(locations.database_file)
