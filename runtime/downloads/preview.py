"""What the Hub says of a repository before it is downloaded: its size, its licence, and its config. Keeps nothing."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from runtime.checkpoint.files import read_json
from runtime.downloads.connection import HubConnection
from runtime.downloads.file_fetch import FetchReports, FetchRules, FileFetch
from runtime.downloads.hub import MAIN, HubAccess, list_repository
from runtime.downloads.manifest import Manifest
from runtime.downloads.retry import Retry, RetryRules, StoppedError
from runtime.downloads.selection import needed_files
from runtime.downloads.unattended import until_stopped
from runtime.errors import CheckpointError, DownloadError

_MOST_CONFIG_BYTES = 1 << 20
_RULES = FetchRules(
    connect_timeout_s=10.0,
    read_timeout_s=10.0,
    retry=RetryRules(first_wait_s=0.5, longest_wait_s=2.0, most_asked_wait_s=5.0, most_failures=2),
)
"""Somebody waits for the answer."""


@dataclass(frozen=True)
class RepositoryPreview:
    """Of one commit. `total_bytes` is what a download would fetch, or a little more where an index leaves some out."""

    commit: str
    licence: str
    total_bytes: int
    config: Mapping[str, Any]


def preview_repository(access: HubAccess, repo_id: str, revision: str, stop: Event) -> RepositoryPreview:
    """Raises DownloadError in one line, also where the repository holds no model."""
    try:
        listing = until_stopped(lambda: list_repository(access, repo_id, revision or MAIN), stop)
    except StoppedError:
        raise DownloadError(f"{repo_id}: nobody waits for the Hub's answer any more") from None
    except Retry as retry:
        raise DownloadError(f"{repo_id}: {retry.reason}; try again later") from None
    manifest = Manifest(repo_id, revision, listing.commit, listing.licence, needed_files(repo_id, listing))
    manifest.check_integrity()
    return RepositoryPreview(listing.commit, listing.licence, manifest.total_bytes, _config(access, manifest, stop))


def _config(access: HubAccess, manifest: Manifest, stop: Event) -> Mapping[str, Any]:
    file = next(file for file in manifest.files if file.name == "config.json")
    if file.num_bytes > _MOST_CONFIG_BYTES:
        raise DownloadError(f"{manifest.repo_id}: its config.json is {file.num_bytes} bytes; choose another repository")
    connection = HubConnection(access, _RULES.connect_timeout_s, _RULES.read_timeout_s)
    try:
        with tempfile.TemporaryDirectory(prefix="hotslot-") as folder:
            reports = FetchReports(lambda *_: None, lambda *_: None)
            FileFetch(connection, manifest, Path(folder), _RULES, stop).fetch(file, reports)
            return read_json(Path(folder) / file.name)
    except StoppedError:
        raise DownloadError(f"{manifest.repo_id}: nobody waits for the Hub's answer any more") from None
    except CheckpointError:
        raise DownloadError(f"{manifest.repo_id}: its config.json can't be read; choose another repository") from None
    except OSError as error:
        raise DownloadError(f"no temporary file can be written ({error.strerror}); free some space") from None
    finally:
        connection.close()
