"""A well-behaved Hub with one small model, and a download of it that is impatient."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import huggingface_hub.constants
import pytest

from runtime.downloads.download import Download
from runtime.downloads.events import DownloadEvent
from runtime.downloads.file_fetch import FetchRules
from runtime.downloads.hub import HubAccess
from runtime.downloads.manifest import Manifest
from runtime.downloads.places import ModelPlaces
from runtime.downloads.retry import RetryRules
from tests.support.hub_server import HubServer, Repository, running_hub
from tests.support.small_repository import REPO_ID, small_model

RULES = FetchRules(
    connect_timeout_s=2.0,
    read_timeout_s=2.0,
    slow_window_s=0.3,
    slow_window_bytes=1024,
    retry=RetryRules(first_wait_s=0.01, longest_wait_s=0.05, most_asked_wait_s=5.0, most_failures=4),
)


@dataclass
class Pulling:
    """One model on one Hub, pulled into one folder."""

    hub: HubServer
    places: ModelPlaces
    access: HubAccess

    @property
    def repository(self) -> Repository:
        return self.hub.repositories[self.places.repo_id]

    def download(self, revision: str = "", rules: FetchRules = RULES) -> Download:
        return Download(self.places, self.access, revision, rules)

    def pull(self, revision: str = "") -> list[DownloadEvent]:
        return list(self.download(revision).run(Event()))

    def assert_complete(self) -> Manifest:
        """The finished folder is exactly what the Hub has, and nothing unfinished is left."""
        manifest = self.places.finished_manifest()
        assert manifest is not None
        assert self.places.state() == "complete"
        for file in manifest.files:
            assert (self.places.folder / file.name).read_bytes() == self.repository.files[file.name], file.name
        assert not self.places.staging.exists()
        return manifest


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    # The suite is offline by default; this Hub is on the loopback.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with running_hub() as server:
        yield server


@pytest.fixture
def pulling(hub: HubServer, tmp_path: Path) -> Pulling:
    hub.repositories[REPO_ID] = Repository(small_model())
    access = HubAccess(hub.endpoint, None, is_offline=False, cache_dir=tmp_path / "hub-cache")
    return Pulling(hub, ModelPlaces.of(tmp_path / "models", REPO_ID), access)
