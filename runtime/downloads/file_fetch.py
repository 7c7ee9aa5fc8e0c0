"""Fetches one file: asks for what is missing until its hash is right, or gives up with a line."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from runtime.downloads.connection import ByteStream, HubConnection
from runtime.downloads.manifest import Manifest, RemoteFile
from runtime.downloads.part_file import PartFile
from runtime.downloads.retry import Retry, RetryLoop, RetryRules, StoppedError
from runtime.errors import DownloadError


class WrongContentError(DownloadError):
    """The server's bytes are not those of the listing."""


@dataclass(frozen=True)
class FetchRules:
    """How patient a download is."""

    num_parallel: int = 4
    connect_timeout_s: float = 15.0
    read_timeout_s: float = 30.0
    slow_window_s: float = 30.0
    slow_window_bytes: int = 32 * 1024
    """An answer that brings less than this in a window is given up, and asked for again."""
    retry: RetryRules = field(default_factory=RetryRules)


@dataclass(frozen=True)
class FetchReports:
    """What a fetch says while it runs, from its own thread."""

    moved: Callable[[int, bool], None]
    """Bytes that came (or, negative, were thrown away); whether they came over the network."""
    retried: Callable[[str, str, float], None]


class FileFetch:
    """One file of `manifest` into `folder`. Runs in one thread; `stop` ends it soon, keeping what is there."""

    def __init__(
        self, connection: HubConnection, manifest: Manifest, folder: Path, rules: FetchRules, stop: Event
    ) -> None:
        self._connection, self._manifest, self._folder = connection, manifest, folder
        self._rules, self._stop = rules, stop

    def fetch(self, file: RemoteFile, reports: FetchReports) -> None:
        """Raises DownloadError, NoRoomError when the disk is full, StoppedError when asked to stop."""
        part = PartFile(self._folder, file, self._check_stop)
        try:
            retries = RetryLoop(file.name, self._rules.retry, self._stop, reports.retried)
            if not self._complete(file, part, retries, reports):
                # Bytes that came in pieces may be of two versions; one whole run decides.
                self._restart(part, reports)
                if not self._complete(file, part, retries, reports):
                    self._restart(part, reports)
                    raise WrongContentError(
                        f"{file.name}: the server's bytes have another hash than its listing says; pull again later"
                    )
        finally:
            part.close()

    def _complete(self, file: RemoteFile, part: PartFile, retries: RetryLoop, reports: FetchReports) -> bool:
        most_bytes = part.num_bytes
        while part.num_bytes < file.num_bytes:
            self._check_stop()
            try:
                self._attempt(file, part, reports)
            except Retry as retry:
                self._check_stop()
                # Slowness counts as a failure whatever it brought; so does what was there before.
                retries.after(retry, part.num_bytes > most_bytes and not isinstance(retry, TooSlow))
                most_bytes = max(most_bytes, part.num_bytes)
        return part.finish()

    def _attempt(self, file: RemoteFile, part: PartFile, reports: FetchReports) -> None:
        manifest = self._manifest
        with self._connection.open(manifest.repo_id, manifest.commit, file, part.num_bytes, part.etag) as stream:
            if stream.offset != part.num_bytes:
                self._restart(part, reports)
            if stream.offset == 0:
                part.remember_etag(stream.etag)
            self._append(file, part, stream, reports)
        if part.num_bytes < file.num_bytes:
            raise Retry(f"the answer ended {file.num_bytes - part.num_bytes} bytes early")

    def _append(self, file: RemoteFile, part: PartFile, stream: ByteStream, reports: FetchReports) -> None:
        window_start, window_bytes = time.monotonic(), 0
        for chunk in stream.chunks():
            wanted = chunk[: file.num_bytes - part.num_bytes]
            before = part.num_bytes
            try:
                part.append(wanted)
            finally:
                reports.moved(part.num_bytes - before, True)
            if part.num_bytes == file.num_bytes:
                return
            self._check_stop()
            window_bytes += len(chunk)
            now = time.monotonic()
            if now - window_start >= self._rules.slow_window_s:
                if window_bytes < self._rules.slow_window_bytes:
                    raise TooSlow(f"only {window_bytes} bytes came in {now - window_start:.0f} s")
                window_start, window_bytes = now, 0

    def _restart(self, part: PartFile, reports: FetchReports) -> None:
        reports.moved(-part.num_bytes, False)
        part.restart()

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise StoppedError


class TooSlow(Retry):
    """The server sends, but so little that it would never end."""
