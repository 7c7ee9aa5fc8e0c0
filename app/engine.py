"""The app's one door to an engine. Everything above it speaks asyncio and never sees a process or a pipe."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from app.errors import HotslotError
from runtime.client import EngineClient
from runtime.errors import EngineError
from runtime.options import EngineOptions
from runtime.protocol import (
    Cancelled,
    CountTokens,
    EngineStats,
    Failed,
    Finished,
    Generate,
    Loaded,
    LoadProgressed,
    RequestEvent,
    Score,
    Scored,
)

Value = TypeVar("Value")
Result = TypeVar("Result")

ProgressCallback = Callable[[LoadProgressed], None]
StatsCallback = Callable[[EngineStats], None]


class Engine(Protocol):
    """One model, loaded or not. All callbacks run on the event loop's thread.

    Every call raises a `HotslotError` whose text is one readable line. After a crash `is_running` is False and the
    next `start` makes a new process.
    """

    on_stats: StatsCallback | None
    """Called about five times a second while tokens flow."""

    @property
    def is_running(self) -> bool: ...

    async def start(self, options: EngineOptions, on_progress: ProgressCallback | None = None) -> Loaded:
        """Load a model, ending the one that runs."""
        ...

    def generate(self, request: Generate) -> AsyncGenerator[RequestEvent, None]:
        """Events of one request; the last is `Finished`, `Cancelled` or `Failed` (a crash is a `Failed` too)."""
        ...

    async def cancel(self, request_id: str) -> None:
        """Stop a request within one step or chunk; unknown ids are ignored."""
        ...

    async def count_tokens(self, request: CountTokens) -> int: ...

    async def score(self, request: Score) -> Scored: ...

    async def stats(self) -> EngineStats: ...

    async def close(self) -> None:
        """End the process; safe to call twice."""
        ...


def is_last(event: RequestEvent) -> bool:
    """Whether a request ends with this event."""
    return isinstance(event, Finished | Cancelled | Failed)


class LocalEngine:
    """`Engine` in a process of its own on this machine."""

    def __init__(self, log_path: Path | None = None, cache_dir: Path | None = None, starts_warm: bool = True) -> None:
        """Without `cache_dir` the engine keeps nothing from one start to the next; `starts_warm`: its slots, too."""
        self._log_path, self._cache_dir, self._starts_warm = log_path, cache_dir, starts_warm
        self.on_stats: StatsCallback | None = None
        self._client: EngineClient | None = None

    @property
    def is_running(self) -> bool:
        return self._client is not None and self._client.is_alive

    async def start(self, options: EngineOptions, on_progress: ProgressCallback | None = None) -> Loaded:
        """Load a model in a new process, ending the old one first."""
        await self.close()
        loop = asyncio.get_running_loop()
        options = replace(options, cache_dir=self._cache_dir, starts_warm=self._starts_warm)
        client = EngineClient(options, self._log_path, lambda stats: _call_on_loop(loop, self._pass_stats, stats))
        self._client = client

        def load() -> Loaded:
            client.start()
            return client.load(lambda progress: _call_on_loop(loop, on_progress, progress))

        try:
            return await _in_thread(load)
        except BaseException:
            await self.close()
            raise

    async def generate(self, request: Generate) -> AsyncGenerator[RequestEvent, None]:
        """Stream one request; leaving the iteration early cancels it."""
        client = self._running()
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[RequestEvent] = asyncio.Queue()
        # Sent before the first await, so that a cancel that follows can't overtake it.
        sent = client.generate(request)

        def pump() -> None:
            try:
                for event in sent:
                    _call_on_loop(loop, queue.put_nowait, event)
            except HotslotError as error:
                failed = Failed(request.request_id, str(error), type(error).__name__)
                _call_on_loop(loop, queue.put_nowait, failed)

        threading.Thread(target=pump, name=f"generate-{request.request_id}", daemon=True).start()
        is_done = False
        try:
            while not is_done:
                event = await queue.get()
                is_done = is_last(event)
                yield event
        finally:
            if not is_done and client.is_alive:
                client.cancel(request.request_id)

    async def cancel(self, request_id: str) -> None:
        """Ask the engine to stop; a dead engine has nothing to stop."""
        if self.is_running:
            await _in_thread(lambda: self._running().cancel(request_id))

    async def count_tokens(self, request: CountTokens) -> int:
        """Tokens the engine would prefill."""
        client = self._running()
        return await _in_thread(lambda: client.count_tokens(request))

    async def score(self, request: Score) -> Scored:
        """Log-probabilities of given tokens."""
        client = self._running()
        return await _in_thread(lambda: client.score(request))

    async def start_trace(self, path: Path) -> None:
        """Record what every step routes to from now on, for `path`."""
        client = self._running()
        await _in_thread(lambda: client.start_trace(path))

    async def stop_trace(self) -> int:
        """Save the trace; returns its number of decode steps."""
        client = self._running()
        return await _in_thread(client.stop_trace)

    async def stats(self) -> EngineStats:
        """The engine's figures now."""
        client = self._running()
        return await _in_thread(client.stats)

    async def close(self) -> None:
        """End the process and everything that waits for it."""
        client, self._client = self._client, None
        if client is not None:
            await _in_thread(client.close)

    def _running(self) -> "EngineClient":
        if self._client is None:
            raise EngineError("No model is loaded; send a message to load one.")
        return self._client

    def _pass_stats(self, stats: EngineStats) -> None:
        if self.on_stats is not None:
            self.on_stats(stats)


def _call_on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[Value], None] | None, value: Value) -> None:
    """Hand a value over from a reader thread; a loop that has ended no longer cares."""
    if callback is not None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(callback, value)


async def _in_thread(call: Callable[[], Result]) -> Result:
    """Run a blocking call in a daemon thread, so that no exit ever waits for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():
            outcome()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            failure = error
            _call_on_loop(loop, settle, lambda: future.set_exception(failure))
        else:
            _call_on_loop(loop, settle, lambda: future.set_result(result))

    threading.Thread(target=run, name="engine-call", daemon=True).start()
    return await future
