"""Downloads one model: lists it, fetches what is missing, and makes the finished folder with one rename.

One process does this per model at a time; another one that is asked for the same shows the first one's progress.
"""

import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

from filelock import FileLock, Timeout

from runtime.downloads.events import (
    DownloadEvent,
    DownloadFinished,
    DownloadPaused,
    DownloadProgressed,
    FileRetried,
    RepositoryListed,
)
from runtime.downloads.file_fetch import FetchRules, WrongContentError
from runtime.downloads.file_names import INDEX_NAME
from runtime.downloads.hub import MAIN, HubAccess, Listing, list_repository
from runtime.downloads.hub_cache import adopt
from runtime.downloads.manifest import Manifest, RemoteFile
from runtime.downloads.part_file import NO_ROOM
from runtime.downloads.places import ModelPlaces, size_on_disk
from runtime.downloads.progress_file import end_progress, progress_elsewhere, tell_progress
from runtime.downloads.retry import Retry, RetryLoop, StoppedError
from runtime.downloads.room import lack_of_room
from runtime.downloads.selection import needed_files, select_by_index
from runtime.downloads.transfer import Transfer
from runtime.downloads.unattended import until_stopped
from runtime.errors import DiskFullError, DownloadError

_WATCH_S = 0.5


@dataclass(frozen=True)
class Download:
    """What to fetch and how. `revision` '' is the newest; a finished model of any commit satisfies it when offline."""

    places: ModelPlaces
    access: HubAccess
    revision: str = ""
    rules: FetchRules = field(default_factory=FetchRules)

    def run(self, stop: Event) -> Iterator[DownloadEvent]:
        """Ends with DownloadFinished or, when `stop` is set, DownloadPaused. Raises DownloadError, DiskFullError.

        Blocks between events, so an event loop runs it in a thread. Closing the iterator stops the download.
        """
        try:
            with _turned_into_lines(self.places):
                yield from self._run(stop)
        except StoppedError:
            yield self._paused()

    def _run(self, stop: Event) -> Iterator[DownloadEvent]:
        lock = self.places.lock()
        yield from self._wait_for_turn(lock, stop)
        try:
            self.places.refuse_links()
            self._finish_replacing()
            finished = self._already_finished()
            if finished is not None:
                fetched_bytes = yield from self._repair(finished, stop)
                yield DownloadFinished(self.places.folder, finished.commit, fetched_bytes)
                return
            yield from self._fetch(stop)
        finally:
            end_progress(self.places)
            lock.release()

    def _wait_for_turn(self, lock: FileLock, stop: Event) -> Iterator[DownloadEvent]:
        while True:
            try:
                lock.acquire(blocking=False)
                return
            except Timeout:
                shown = progress_elsewhere(self.places)
                if shown is not None:
                    yield shown
            if stop.wait(_WATCH_S):
                raise StoppedError

    def _already_finished(self) -> Manifest | None:
        """The finished folder's manifest, if that is what was asked for, without asking the Hub.

        A damaged one is made whole before anybody asks for a newer one.
        """
        manifest = self.places.finished_manifest()
        if manifest is None:
            if self.places.folder.exists():
                raise DownloadError(
                    f"{self.places.folder} is there but was not downloaded by Hotslot; move it away, then pull again"
                )
            return None
        is_default = not self.revision and (self.access.is_offline or bool(self.places.misfits()))
        return manifest if is_default or self.revision == manifest.commit else None

    def _repair(self, manifest: Manifest, stop: Event) -> Generator[DownloadEvent, None, int]:
        """Fetch what misfits of a finished folder, file by file, beside it. Returns the bytes that came."""
        misfits = set(self.places.misfits())
        if not misfits:
            return 0
        if self.access.is_offline:
            raise DownloadError(
                f"{self.places.repo_id}: {min(misfits)} is damaged, and the Hub is switched off (HF_HUB_OFFLINE)"
            )
        self.places.staging.mkdir(parents=True, exist_ok=True)
        wanted = tuple(file for file in manifest.files if file.name in misfits)
        fetched_bytes = yield from self._transfer(replace(manifest, files=wanted), stop)
        for file in wanted:
            os.replace(self.places.staging / file.name, self.places.folder / file.name)
        if _read_staged(self.places.staging) is None:
            # Else a newer commit grows there.
            shutil.rmtree(self.places.staging, ignore_errors=True)
        return fetched_bytes

    def _fetch(self, stop: Event) -> Iterator[DownloadEvent]:
        manifest = yield from self._manifest(stop)
        finished = self.places.finished_manifest()
        if finished is not None and finished.commit == manifest.commit and not self.places.misfits():
            shutil.rmtree(self.places.staging, ignore_errors=True)
            yield DownloadFinished(self.places.folder, manifest.commit, 0)
            return
        index = tuple(file for file in manifest.files if file.name == INDEX_NAME)
        fetched_bytes = 0
        if index and not manifest.skipped:
            fetched_bytes += yield from self._transfer(replace(manifest, files=index), stop)
            manifest = select_by_index(manifest, self.places.staging)
            self._write(manifest)
        present = sum(self._staged_bytes(file) for file in manifest.files)
        yield RepositoryListed(manifest.repo_id, manifest.commit, len(manifest.files), manifest.total_bytes, present)
        fetched_bytes += yield from self._transfer(manifest, stop)
        self._finish(manifest)
        yield DownloadFinished(self.places.folder, manifest.commit, fetched_bytes)

    def _manifest(self, stop: Event) -> Generator[DownloadEvent, None, Manifest]:
        """Of the staging folder, so that a download goes on with the commit it began with; else of the Hub now."""
        staged = _read_staged(self.places.staging)
        if staged is not None and self.revision in (staged.revision, staged.commit) and not self.access.is_offline:
            return staged
        retries = RetryLoop(self.places.repo_id, self.rules.retry, stop, lambda *_: None)
        while True:
            try:
                listing = until_stopped(self._listing, stop)
                break
            except Retry as retry:
                wait_s = retries.next_wait_s(retry, has_progressed=False)
                yield FileRetried(self.places.repo_id, retry.reason, wait_s)
                retries.wait(wait_s)
        files = needed_files(self.places.repo_id, listing)
        manifest = Manifest(self.places.repo_id, self.revision, listing.commit, listing.licence, files)
        manifest.check_integrity()
        # Only now: a repository that is not there has begun nothing.
        self.places.staging.mkdir(parents=True, exist_ok=True)
        self._keep_only(manifest)
        self._write(manifest)
        return manifest

    def _listing(self) -> Listing:
        return list_repository(self.access, self.places.repo_id, self.revision or MAIN)

    def _transfer(self, manifest: Manifest, stop: Event) -> Generator[DownloadEvent, None, int]:
        """Fetch what is not staged yet. Returns the bytes that came over the network."""
        for file in manifest.files:
            if stop.is_set():
                raise StoppedError
            if self._staged_bytes(file) < file.num_bytes:
                adopt(self.access, self.places, manifest.commit, file, stop)
        missing = [file for file in manifest.files if size_on_disk(self.places.staging / file.name) != file.num_bytes]
        transfer = Transfer(self.access, manifest, self.places.staging, self.rules, stop)
        try:
            for event in transfer.run(missing):
                if isinstance(event, DownloadProgressed):
                    tell_progress(self.places, event)
                yield event
        except WrongContentError:
            # The listing may be at fault: the next pull gets a new one.
            self._forget_manifest()
            raise
        return transfer.meter.fetched_bytes

    def _staged_bytes(self, file: RemoteFile) -> int:
        staging = self.places.staging
        return max(0, size_on_disk(staging / file.name), size_on_disk(staging / (file.name + ".part")))

    def _keep_only(self, manifest: Manifest) -> None:
        """Files of an earlier listing are kept where the new one has the same content."""
        old = _read_staged(self.places.staging)
        same = {file.name for file in old.files if file in manifest.files} if old is not None else set()
        for path in self.places.staging.iterdir():
            if path.name.removesuffix(".part").removesuffix(".etag") not in same:
                path.unlink()

    def _forget_manifest(self) -> None:
        manifest = _read_staged(self.places.staging)
        if manifest is not None:
            self._write(replace(manifest, revision="(stale)"))

    def _finish(self, manifest: Manifest) -> None:
        """All files are here and their hashes were right."""
        places = self.places
        misfits = [file.name for file in manifest.files if size_on_disk(places.staging / file.name) != file.num_bytes]
        if misfits:
            raise DownloadError(f"{places.repo_id}: {misfits[0]} changed on the disk meanwhile; pull again")
        for leftover in [path for path in places.staging.iterdir() if path.suffix in (".part", ".etag", ".new")]:
            leftover.unlink()
        self._write(manifest)
        if places.folder.exists():
            os.replace(places.folder, places.replaced)
        os.replace(places.staging, places.folder)
        shutil.rmtree(places.replaced, ignore_errors=True)

    def _write(self, manifest: Manifest) -> None:
        """Into the staging folder. Raises DiskFullError with all that is still to come."""
        try:
            manifest.write(self.places.staging)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            missing = sum(file.num_bytes - self._staged_bytes(file) for file in manifest.files)
            raise lack_of_room(manifest.repo_id, self.places.models_dir, missing) from None

    def _finish_replacing(self) -> None:
        """A process that died while it replaced a finished folder left it beside; it is taken back."""
        if self.places.replaced.is_dir():
            if self.places.folder.exists():
                shutil.rmtree(self.places.replaced)
            else:
                os.replace(self.places.replaced, self.places.folder)

    def _paused(self) -> DownloadPaused:
        manifest = _read_staged(self.places.staging)
        files = manifest.files if manifest is not None else ()
        return DownloadPaused(sum(map(self._staged_bytes, files)), sum(file.num_bytes for file in files))


@contextmanager
def _turned_into_lines(places: ModelPlaces) -> Iterator[None]:
    """Errors of the disk that nobody nearer could name."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFullError(f"{places.models_dir}: the disk is full; free some space and pull again", 1) from None
        raise DownloadError(
            f"{error.filename or places.models_dir}: {error.strerror or type(error).__name__}; "
            "check the disk and its permissions"
        ) from None


def _read_staged(staging: Path) -> Manifest | None:
    """A damaged manifest of unfinished files is no loss: the Hub has it."""
    try:
        return Manifest.read(staging)
    except DownloadError:
        return None
