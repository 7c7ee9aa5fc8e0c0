"""A well-behaved Hub with one small model, and a download of it that is impatient."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import huggingface_hub.constants
import pytest

from runtime.downloads.download import Download
from runtime.downloads.events import DownloadEvent
from runtime.downloads.file_fetch import FetchRules
from runtime.downloads.file_names import INDEX_NAME
from runtime.downloads.hub import HubAccess
from runtime.downloads.manifest import Manifest
from runtime.downloads.places import ModelPlaces
from runtime.downloads.retry import RetryRules
from tests.support.hub_server import HubServer, Repository, running_hub

REPO_ID = "someone/Small-Model"
RULES = FetchRules(
    connect_timeout_s=2.0,
    read_timeout_s=2.0,
    slow_window_s=0.3,
    slow_window_bytes=1024,
    retry=RetryRules(first_wait_s=0.01, longest_wait_s=0.05, most_asked_wait_s=5.0, most_failures=4),
)
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def small_model(shard_bytes: int = 600_000) -> dict[str, bytes]:
    """Two shards of noise, an index that names them and a shard of MTP, and files that nobody needs."""
    content = random.Random(5)
    weight_map = {"model.a": SHARDS[0], "model.b": SHARDS[1], "mtp.layers.0.x": "mtp.safetensors"}
    return {
        "config.json": b'{"model_type": "qwen3_moe"}',
        "tokenizer.json": content.randbytes(3000),
        "README.md": b"---\nlicense: apache-2.0\n---\n",
        INDEX_NAME: json.dumps({"weight_map": weight_map}).encode(),
        SHARDS[0]: content.randbytes(shard_bytes),
        SHARDS[1]: content.randbytes(shard_bytes // 2),
        "mtp.safetensors": content.randbytes(1000),
        "original/consolidated.safetensors": content.randbytes(1000),
        "figure.png": content.randbytes(1000),
    }


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
