"""Fetches a set of files into one folder, several at a time, and tells how it goes.

Owns the threads. They end before the iterator does, however it ends.
"""

import queue
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from runtime.downloads.connection import HubConnection
from runtime.downloads.events import DownloadEvent, FileFetched, FileRetried
from runtime.downloads.file_fetch import FetchReports, FetchRules, FileFetch
from runtime.downloads.hub import HubAccess
from runtime.downloads.manifest import Manifest, RemoteFile
from runtime.downloads.meter import TransferMeter
from runtime.downloads.part_file import NoRoomError, part_bytes
from runtime.downloads.retry import StoppedError
from runtime.downloads.room import free_bytes, lack_of_room
from runtime.errors import DiskFullError

_TICK_S = 0.25
"""Between two reports of progress, and looks at the disk."""
_STOP_S = 0.05
"""Between two looks at `stop`."""
_SLACK_BYTES = 1 << 20
"""Bytes on their way to the disk are counted a moment after they took their room."""


class Transfer:
    """One run. `stop` may be set by anyone at any time."""

    def __init__(self, access: HubAccess, manifest: Manifest, folder: Path, rules: FetchRules, stop: Event) -> None:
        self._access, self._manifest, self._folder, self._rules, self._stop = access, manifest, folder, rules, stop
        self._halt = Event()
        self._events: queue.SimpleQueue[DownloadEvent] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[RemoteFile] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self.meter = TransferMeter(manifest.total_bytes, len(manifest.files))

    def run(self, files: Sequence[RemoteFile]) -> Iterator[DownloadEvent]:
        """Fetch `files`, the largest first; the others of the manifest count as here.

        Raises DownloadError, DiskFullError with what is missing, StoppedError when asked to stop.
        """
        for file in sorted(files, key=lambda file: -file.num_bytes):
            self._waiting.put(file)
        others = [file for file in self._manifest.files if file not in files]
        self.meter.move(sum(file.num_bytes for file in others), False)
        self.meter.move(sum(part_bytes(self._folder, file) for file in files), False)
        for _ in others:
            self.meter.end_file()
        self._refuse_lack_of_room(slack_bytes=0)
        connection = HubConnection(self._access, self._rules.connect_timeout_s, self._rules.read_timeout_s)
        threads = [
            Thread(target=self._work, args=(connection,), name=f"download-{i}", daemon=True)
            for i in range(min(self._rules.num_parallel, len(files)))
        ]
        try:
            for thread in threads:
                thread.start()
            yield from self._watch(threads)
        finally:
            self._halt.set()
            while any(thread.is_alive() for thread in threads):
                # A thread may have begun to wait for bytes after the last look.
                connection.abort()
                threads[0].join(0.02)
                for thread in threads[1:]:
                    thread.join(0.02)
            connection.close()
        self._raise_failure()
        self.meter.check_integrity()

    def _watch(self, threads: Sequence[Thread]) -> Iterator[DownloadEvent]:
        yield self.meter.progress()
        next_tick = time.monotonic() + _TICK_S
        while any(thread.is_alive() for thread in threads) and not self._halt.is_set():
            with suppress(queue.Empty):
                yield self._events.get(timeout=_STOP_S)
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + _TICK_S
                yield self.meter.progress()
                self._refuse_lack_of_room(_SLACK_BYTES)
            if self._stop.is_set():
                raise StoppedError
        while not self._events.empty():
            yield self._events.get()
        yield self.meter.progress()

    def _work(self, connection: HubConnection) -> None:
        fetch = FileFetch(connection, self._manifest, self._folder, self._rules, self._halt)
        reports = FetchReports(self.meter.move, self._tell_retry)
        try:
            while not self._halt.is_set():
                file = self._waiting.get_nowait()
                fetch.fetch(file, reports)
                self.meter.end_file()
                self._events.put(FileFetched(file.name, file.num_bytes))
        except queue.Empty:
            pass
        except Exception as error:
            # The first failure is the one to tell; those of threads that are being stopped follow from it.
            if self._failure is None and not (isinstance(error, StoppedError) and self._halt.is_set()):
                self._failure = error
            self._halt.set()

    def _tell_retry(self, name: str, reason: str, seconds: float) -> None:
        self._events.put(FileRetried(name, reason, seconds))

    def _raise_failure(self) -> None:
        if isinstance(self._failure, NoRoomError):
            raise self._disk_full() from None
        if self._failure is not None:
            raise self._failure

    def _refuse_lack_of_room(self, slack_bytes: int) -> None:
        if free_bytes(self._folder) + slack_bytes < self.meter.missing_bytes:
            raise self._disk_full()

    def _disk_full(self) -> DiskFullError:
        return lack_of_room(self._manifest.repo_id, self._folder.parent.parent, self.meter.missing_bytes)
