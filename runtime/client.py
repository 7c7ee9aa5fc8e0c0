"""The one door to an engine process: starts it, sends commands, hands out events. Imports no torch.

Owns the process, the pipe and one thread that reads from it. Every request ends in its last event, or in an
EngineError if the process ends first. An ended process is never restarted here: make a new client.
"""

import contextlib
import itertools
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from runtime import errors
from runtime.errors import EngineError, HotslotError
from runtime.options import EngineOptions
from runtime.protocol import (
    Cancel,
    Cancelled,
    CountTokens,
    EngineStats,
    Failed,
    Finished,
    Generate,
    GetStats,
    Loaded,
    LoadFailed,
    LoadModel,
    LoadProgressed,
    RequestEvent,
    Score,
    Scored,
    Shutdown,
    StartTrace,
    StatsReported,
    StopTrace,
    TokensCounted,
    TraceSaved,
)
from runtime.wire import Wire

_LAST_EVENTS = (Finished, Cancelled, Failed, Scored, TokensCounted)
_LOAD_ID = "\0load"
_EXIT_GRACE_S = 2.0
_LOG_LIMIT_BYTES = 1 << 20
_SECRET_WORDS = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIALS", "AUTH"})
"""In names of environment variables. The engine needs none of these, and other processes of the user can read its."""


class EngineClient:
    """One engine process with one model.

    `on_stats` is called from the reading thread about five times a second while tokens flow. `log_path` receives what
    the engine process prints; without it that is discarded.
    """

    def __init__(
        self,
        options: EngineOptions,
        log_path: Path | None = None,
        on_stats: Callable[[EngineStats], None] | None = None,
    ) -> None:
        self._options = replace(options, model_path=Path(options.model_path).expanduser().absolute())
        self._log_path = log_path
        self.on_stats = on_stats
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: Wire | None = None
        self._spawn_lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._queues_lock = threading.Lock()
        self._queues: dict[str, queue.SimpleQueue[object]] = {}
        self._end_message: str | None = None
        self._is_closing = False
        self._is_pipe_open = True
        self._reader: threading.Thread | None = None
        self._numbers = itertools.count(1)

    # ---- process

    @property
    def is_alive(self) -> bool:
        """The process runs and its pipe is open."""
        return self._process is not None and self._is_pipe_open and self._process.poll() is None

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process; returns once it exists. Raises EngineError if it can't be started."""
        if self._reader is not None:
            raise EngineError("This engine was started before; make a new one.")
        started: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        # Linux ends the child when the *thread* that made it ends (worker.py asks for that), so the thread that reads
        # from the child, which lives exactly as long as the pipe, is the one to make it.
        self._reader = threading.Thread(target=self._run_reader, args=(started,), name="engine-reader", daemon=True)
        self._reader.start()
        failure = started.get()
        if failure is not None:
            raise EngineError(f"The engine process could not be started: {failure}") from failure

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            log = _open_log(self._log_path)
            try:
                self._process = subprocess.Popen(
                    # -P: a folder called `runtime` or `torch` in the current directory must not be imported.
                    [sys.executable, "-P", "-m", "runtime.worker", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    env=child_environment(),
                    # Ctrl-C in the terminal is the app's to handle: it cancels, the engine goes on.
                    start_new_session=True,
                )
            finally:
                if log != subprocess.DEVNULL:
                    os.close(log)
            self._wire = Wire(ours.detach())
        finally:
            ours.close()
            theirs.close()

    def close(self) -> None:
        """End the process; open requests end with an EngineError. Safe to call twice and from any thread."""
        with self._spawn_lock:  # A process on its way into the world must not be missed.
            self._is_closing = True
            process = self._process
        if process is None:
            return
        with contextlib.suppress(EngineError):  # It may be gone already, which is what we want.
            self._send(Shutdown())
        try:
            process.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None and self._reader is not threading.current_thread():
            self._reader.join(_EXIT_GRACE_S)

    def __enter__(self) -> "EngineClient":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- requests

    def load(self, on_progress: Callable[[LoadProgressed], None] | None = None) -> Loaded:
        """Load the model of the options. Raises the HotslotError that explains why it can't be."""
        events = self._open(_LOAD_ID)
        try:
            self._send(LoadModel(self._options))
            while True:
                event = self._next(events)
                if isinstance(event, LoadProgressed) and on_progress is not None:
                    on_progress(event)
                elif isinstance(event, LoadFailed):
                    _raise(event.kind, event.message)
                elif isinstance(event, Loaded):
                    return event
        finally:
            self._close(_LOAD_ID)

    def generate(self, request: Generate) -> Iterator[RequestEvent]:
        """Send the request now; iterate to get its events, the last of which ends it.

        Closing the iterator early cancels the request. Raises EngineError if the process ends first.
        """
        events = self._open(request.request_id)
        try:
            self._send(request)
        except EngineError:
            self._close(request.request_id)
            raise
        return self._events_of(request.request_id, events)

    def _events_of(self, request_id: str, events: "queue.SimpleQueue[object]") -> Iterator[RequestEvent]:
        is_over = False
        try:
            while not is_over:
                event = self._next(events)
                is_over = isinstance(event, _LAST_EVENTS)
                yield event  # type: ignore[misc]
        except EngineError:
            is_over = True
            raise
        finally:
            self._close(request_id)
            if not is_over:
                self.cancel(request_id)

    def cancel(self, request_id: str) -> None:
        """Stop a request within one step or chunk; its last event still comes. Unknown ids are ignored."""
        with contextlib.suppress(EngineError):  # If the process has ended, so has the request.
            self._send(Cancel(request_id))

    def count_tokens(self, request: CountTokens) -> int:
        """Tokens the engine would prefill for these messages. Raises RequestError or EngineError."""
        event = self._ask(request)
        assert isinstance(event, TokensCounted)
        return event.num_tokens

    def score(self, request: Score) -> Scored:
        """Teacher-forced log-probabilities. Raises RequestError or EngineError."""
        event = self._ask(request)
        if isinstance(event, Cancelled):
            raise EngineError("Scoring was cancelled.")
        assert isinstance(event, Scored)
        return event

    def start_trace(self, path: Path) -> None:
        """Record what steps route to from now on, for `path`. Raises TraceError or EngineError."""
        self._ask(StartTrace(f"trace-{next(self._numbers)}", str(path.absolute())))

    def stop_trace(self) -> int:
        """Save the trace; returns its number of decode steps. Raises TraceError or EngineError."""
        event = self._ask(StopTrace(f"trace-{next(self._numbers)}"))
        assert isinstance(event, TraceSaved)
        return event.num_steps

    def stats(self) -> EngineStats:
        """The engine's figures now."""
        event = self._ask(GetStats(f"stats-{next(self._numbers)}"))
        assert isinstance(event, StatsReported)
        return event.stats

    # ---- plumbing

    def _ask(self, command: CountTokens | Score | GetStats | StartTrace | StopTrace) -> object:
        events = self._open(command.request_id)
        try:
            self._send(command)
            event = self._next(events)
        finally:
            self._close(command.request_id)
        if isinstance(event, Failed):
            _raise(event.kind, event.message)
        return event

    def _open(self, request_id: str) -> "queue.SimpleQueue[object]":
        with self._queues_lock:
            if self._end_message is not None:
                raise EngineError(self._end_message)
            if request_id in self._queues:
                raise EngineError(f"Request {request_id} is running already; give each request an id of its own.")
            return self._queues.setdefault(request_id, queue.SimpleQueue())

    def _close(self, request_id: str) -> None:
        with self._queues_lock:
            self._queues.pop(request_id, None)

    def _next(self, events: "queue.SimpleQueue[object]") -> object:
        event = events.get()
        if isinstance(event, EngineError):
            raise event
        return event

    def _send(self, command: object) -> None:
        if self._wire is None:
            raise EngineError("The engine was not started.")
        try:
            with self._send_lock:
                self._wire.send(command)
        except OSError as error:
            raise EngineError(self._end_message or _end_message(self._process, self._is_closing)) from error

    def _run_reader(self, started: "queue.SimpleQueue[Exception | None]") -> None:
        try:
            with self._spawn_lock:
                if self._is_closing:
                    raise InterruptedError("it was closed first")
                self._spawn()
        except (OSError, ValueError) as error:
            self._end_message = "The engine process could not be started; send the message again to try once more."
            started.put(error)
            return
        started.put(None)
        assert self._wire is not None
        try:
            while True:
                self._dispatch(self._wire.receive())
        except (EOFError, OSError):
            self._end(None)
        except Exception as error:
            # A frame that is no event, or a callback that raised: nobody would read on, so the process must end too.
            self._end(error)

    def _dispatch(self, event: object) -> None:
        if isinstance(event, StatsReported) and not event.request_id:
            if self.on_stats is not None:
                self.on_stats(event.stats)
            return
        request_id = _LOAD_ID if isinstance(event, LoadProgressed | Loaded | LoadFailed) else event.request_id  # type: ignore[attr-defined]
        with self._queues_lock:
            events = self._queues.get(request_id)
        if events is not None:
            events.put(event)

    def _end(self, failure: Exception | None) -> None:
        """Nothing more comes from the pipe: collect the process and tell every open request."""
        process, wire = self._process, self._wire
        assert process is not None
        assert wire is not None
        self._is_pipe_open = False
        if failure is not None:
            process.kill()
        try:
            process.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with self._queues_lock:
            self._end_message = _end_message(process, self._is_closing, failure)
            for events in self._queues.values():
                events.put(EngineError(self._end_message))
        with self._send_lock:
            wire.close()


def _end_message(process: "subprocess.Popen[bytes] | None", is_closing: bool, failure: Exception | None = None) -> str:
    if is_closing:
        return "The engine was closed."
    if failure is not None:
        reason = " ".join(str(failure).split())
        return f"The engine's messages could not be read ({reason}); send the message again to start a new one."
    status = process.poll() if process is not None else None
    how = "" if status is None else f" (signal {-status})" if status < 0 else f" (exit status {status})"
    return f"The engine process ended unexpectedly{how}; send the message again to start a new one."


def _raise(kind: str, message: str) -> NoReturn:
    """Raise the runtime error class that the engine named."""
    error_class = getattr(errors, kind, EngineError)
    is_ours = isinstance(error_class, type) and issubclass(error_class, HotslotError)
    raise (error_class if is_ours else EngineError)(message)


def child_environment() -> dict[str, str]:
    """The engine process finds this very `runtime`, shares the cores, keeps its memory bounded and knows no secret."""
    root = str(Path(__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    own = {"PYTHONPATH": os.pathsep.join([root, inherited]) if inherited else root, "PYTHONUNBUFFERED": "1"}
    # The two OpenMP runtimes that torch comes with: GNU's and LLVM's. A waiting thread that spins takes the core that
    # the app draws with; on two busy cores it makes the engine itself ten times slower.
    sleeping = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
    # Left alone, glibc's heap keeps ever more of what long prompts freed. With these it keeps the memory of a chunk, so
    # that prefill faults no page of it twice (measured); the scores of a long context, larger with every chunk, would
    # only leave holes in it, and are mapped and unmapped. One heap for all threads: with several, what a step leaves in
    # which of them changes from run to run, by 3 % of the small model's memory.
    bounded = {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
    }
    inheritable = {name: value for name, value in os.environ.items() if not _SECRET_WORDS & set(name.split("_"))}
    return sleeping | bounded | inheritable | own


def _open_log(path: Path | None) -> int:
    """A descriptor to append to; a grown log is kept once, under `.1`. Output is discarded where none opens."""
    if path is None:
        return subprocess.DEVNULL
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
            path.replace(path.with_name(path.name + ".1"))
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return subprocess.DEVNULL
