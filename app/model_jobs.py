"""Downloads and checks of models that run beside everything else: at most one per model, each in a thread of its own.

Owns the threads and what is known of each job. Whoever shows them reads `states`; `on_changed` says when to look.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Literal

from app.errors import HotslotError
from app.failure_log import log_failure
from app.library import RemoteModel, ask_hub, remove_download
from app.locations import Locations
from app.sanitize import clean_line
from app.threads import in_thread
from runtime.downloads.events import (
    DownloadEvent,
    DownloadFinished,
    DownloadPaused,
    DownloadProgressed,
    FileChecked,
    FileRetried,
    RepositoryListed,
    VerifyEvent,
    VerifyProgressed,
)
from runtime.downloads.places import ModelPlaces
from runtime.downloads.removal import discard_unfinished
from runtime.downloads.verify import discard_bad_file, verify_model
from runtime.errors import DownloadError

if TYPE_CHECKING:
    from runtime.downloads.hub import HubAccess

JobKind = Literal["download", "verify"]
JobPhase = Literal["starting", "elsewhere", "fetching", "checking", "stopping", "paused", "failed", "done"]
RUNNING: frozenset[JobPhase] = frozenset({"starting", "elsewhere", "fetching", "checking", "stopping"})
_CLOSE_S = 3.0
"""A transfer looks at its stop sign every 0.05 s; a disk that hangs is not waited for longer than this."""


@dataclass(frozen=True)
class JobState:
    """How far one job is. Sizes are bytes; `seconds_left` is None where there is no speed to judge by."""

    remote: RemoteModel
    kind: JobKind
    phase: JobPhase = "starting"
    done_bytes: int = 0
    total_bytes: int = 0
    bytes_per_second: float = 0.0
    seconds_left: float | None = None
    num_files_done: int = 0
    num_files: int = 0
    fetched_bytes: int = 0
    """Over the network, when it is done."""
    note: str = ""
    """One line: why it waits, what failed, what was found."""

    @property
    def repo_id(self) -> str:
        return self.remote.places.repo_id

    @property
    def is_running(self) -> bool:
        return self.phase in RUNNING

    def after(self, event: DownloadEvent | VerifyEvent) -> "JobState":
        """The state once this has happened. Nothing but the end ends `stopping`."""
        phase: JobPhase = self.phase
        match event:
            case RepositoryListed():
                size = replace(self, total_bytes=event.total_bytes, done_bytes=event.present_bytes)
                return replace(size, num_files=event.num_files, phase=self._unless_stopping("fetching"))
            case DownloadProgressed():
                return self._progressed(event)
            case FileRetried():
                wait = f"next try in {event.seconds:.0f} s"
                return replace(self, note=clean_line(f"{event.name}: {event.reason}; {wait}"), bytes_per_second=0.0)
            case VerifyProgressed():
                phase = self._unless_stopping("checking")
                return replace(self, phase=phase, done_bytes=event.done_bytes, total_bytes=event.total_bytes)
            case FileChecked() if event.problem:
                return replace(self, note=clean_line(f"{event.name} {event.problem}"))
            case DownloadPaused():
                return replace(self, phase="paused", note="", bytes_per_second=0.0, seconds_left=None)
            case DownloadFinished():
                return replace(self, phase="done", fetched_bytes=event.fetched_bytes, seconds_left=None)
        return self

    def _progressed(self, event: DownloadProgressed) -> "JobState":
        return replace(
            self,
            phase=self._unless_stopping("elsewhere" if event.is_elsewhere else "fetching"),
            done_bytes=event.done_bytes,
            total_bytes=event.total_bytes,
            bytes_per_second=event.bytes_per_second,
            seconds_left=event.seconds_left,
            num_files_done=event.num_files_done,
            num_files=event.num_files,
            # What a retry was about is over once bytes flow again; what a check found is not.
            note="" if event.bytes_per_second > 0 and self.kind == "download" else self.note,
        )

    def _unless_stopping(self, phase: JobPhase) -> JobPhase:
        return "stopping" if self.phase == "stopping" else phase


class ModelJobs:
    """Must be used from one event loop. `access` is asked in the job's thread: it reads the user's Hub settings."""

    def __init__(self, locations: Locations, access: "Callable[[], HubAccess] | None" = None) -> None:
        self._locations = locations
        self._access = access or _user_access
        self._states: dict[str, JobState] = {}
        self._stops: dict[str, Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.on_changed: Callable[[JobState], None] = lambda _: None
        """Called on the event loop, a few times a second while a job runs."""
        self.num_endings = 0
        """Grows when a job ends or a model is removed: what is on the disk has changed."""

    async def ask_hub(self, remote: RemoteModel) -> RemoteModel:
        """The model with what the Hub says of it now. Raises HotslotError, also where it can't be run here."""
        return await in_thread(lambda stop: ask_hub(remote, self._access(), stop))

    @property
    def states(self) -> dict[str, JobState]:
        """By repository; the last job of each model, running or ended."""
        return dict(self._states)

    @property
    def running(self) -> list[JobState]:
        return [state for state in self._states.values() if state.is_running]

    def is_running(self, repo_id: str) -> bool:
        state = self._states.get(repo_id)
        return state is not None and state.is_running

    def pull(self, remote: RemoteModel) -> None:
        """Download the model, or go on with it. Nothing happens while a job of this model runs."""
        self._start(JobState(remote, "download"), lambda stop: self._download(remote, stop))

    def verify(self, remote: RemoteModel) -> None:
        """Read everything again, and fetch what is bad. Nothing happens while a job of this model runs."""
        self._start(JobState(remote, "verify"), lambda stop: self._verify(remote, stop))

    def pause(self, repo_id: str) -> None:
        """Stop the job and keep what is there; `pull` goes on with it."""
        if self.is_running(repo_id):
            self._stops[repo_id].set()
            self._set(replace(self._states[repo_id], phase="stopping"))

    async def cancel(self, remote: RemoteModel) -> int:
        """Stop the job and throw away what is not finished. Returns the bytes freed. Raises DownloadError."""
        await self._stop(remote.places.repo_id)
        return await self._take_away(remote, discard_unfinished)

    async def remove(self, remote: RemoteModel) -> int:
        """Stop the job and remove the model from the disk. Returns the bytes freed. Raises DownloadError."""
        await self._stop(remote.places.repo_id)
        return await self._take_away(remote, lambda places: remove_download(places, self._locations))

    async def wait(self, repo_id: str) -> JobState:
        """The state of this model's job once it has ended."""
        if repo_id in self._tasks:
            await asyncio.shield(self._tasks[repo_id])
        return self._states[repo_id]

    async def close(self) -> None:
        """Stop everything; what was fetched is kept."""
        for stop in self._stops.values():
            stop.set()
        running = [task for task in self._tasks.values() if not task.done()]
        if running:
            await asyncio.wait(running, timeout=_CLOSE_S)

    def check_integrity(self) -> None:
        """What runs has a task and a stop sign, and nothing else does."""
        running = {state.repo_id for state in self.running}
        assert running == {repo_id for repo_id, task in self._tasks.items() if not task.done()}, running
        assert running <= set(self._stops)

    # ---- one job

    def _start(self, state: JobState, events: Callable[[Event], Iterator[DownloadEvent | VerifyEvent]]) -> None:
        repo_id = state.repo_id
        if self.is_running(repo_id):
            return
        self._stops[repo_id] = Event()
        self._set(state)
        self._tasks[repo_id] = asyncio.create_task(self._run(repo_id, events))

    async def _run(self, repo_id: str, events: Callable[[Event], Iterator[DownloadEvent | VerifyEvent]]) -> None:
        stop, loop, context = self._stops[repo_id], asyncio.get_running_loop(), copy_context()

        def work(_: Event) -> None:
            for event in events(stop):
                with suppress(RuntimeError):  # The loop has ended and no longer cares.
                    loop.call_soon_threadsafe(self._take, repo_id, event, context=context)

        try:
            await in_thread(work)
        except HotslotError as error:
            self._set(replace(self._states[repo_id], phase="failed", note=clean_line(str(error)), seconds_left=None))
            return
        except asyncio.CancelledError:
            stop.set()
            raise
        except Exception as error:
            is_logged = log_failure(self._locations.log_file, error)
            where = f"; {self._locations.log_file} says where" if is_logged else ""
            note = f"it ended unexpectedly ({type(error).__name__}){where}"
            self._set(replace(self._states[repo_id], phase="failed", note=note))
            return
        state = self._states[repo_id]
        if state.is_running:
            self._set(replace(state, phase="paused" if stop.is_set() else "done", seconds_left=None))

    def _take(self, repo_id: str, event: DownloadEvent | VerifyEvent) -> None:
        self._set(self._states[repo_id].after(event))

    def _set(self, state: JobState) -> None:
        self._states[state.repo_id] = state
        self.num_endings += not state.is_running
        self.on_changed(state)

    async def _stop(self, repo_id: str) -> None:
        self.pause(repo_id)
        if repo_id in self._tasks:
            await asyncio.wait({self._tasks[repo_id]})

    async def _take_away(self, remote: RemoteModel, take: Callable[[ModelPlaces], int]) -> int:
        freed_bytes = await in_thread(lambda _: take(remote.places))
        self._states.pop(remote.places.repo_id, None)
        self.num_endings += 1
        return freed_bytes

    # ---- in the job's thread

    def _download(self, remote: RemoteModel, stop: Event) -> Iterator[DownloadEvent]:
        # Brings the HTTP client, which those who download nothing need not wait for.
        from runtime.downloads.download import Download

        yield from Download(remote.places, self._access(), remote.revision).run(stop)

    def _verify(self, remote: RemoteModel, stop: Event) -> Iterator[DownloadEvent | VerifyEvent]:
        bad: list[FileChecked] = []
        for event in verify_model(remote.places):
            if stop.is_set():
                return
            if isinstance(event, FileChecked) and event.problem:
                bad.append(event)
            yield event
        if bad:
            yield from mend(remote, bad, self._access(), stop)


def _user_access() -> "HubAccess":
    # Only those who download should wait for its modules.
    from runtime.downloads.hub import HubAccess

    return HubAccess.from_environment()


def mend(remote: RemoteModel, bad: list[FileChecked], access: "HubAccess", stop: Event) -> Iterator[DownloadEvent]:
    """Fetch files that a check found bad again. Raises DownloadError, before anything is changed, if it can't be."""
    # Brings the HTTP client, which those who download nothing need not wait for.
    from runtime.downloads.download import Download

    manifest = remote.places.finished_manifest()
    if access.is_offline:
        names = ", ".join(file.name for file in bad)
        raise DownloadError(f"{names} is damaged, and the Hub is switched off (HF_HUB_OFFLINE); unset it to mend it")
    for file in bad:
        discard_bad_file(remote.places, file.name)
    yield from Download(remote.places, access, manifest.commit if manifest is not None else "").run(stop)
