"""Starting the engine as events: loads on demand, restarts when an option of loading changed, can be cancelled."""

import asyncio
import math
import time
from collections.abc import Callable

from app.chat.events import EngineReady, EngineStarting, NoticeShown, TurnEvents
from app.engine import Engine
from runtime.options import EngineOptions
from runtime.protocol import Loaded, LoadProgressed

PHASE_SHARES = {"opening": 0.02, "dense": 0.2, "experts": 0.6, "slots": 0.1, "warmup": 0.08}
"""Share of each loading phase in the whole, for a bar that moves evenly enough."""

_LEAST_BYTES = 100_000_000


class EngineStarter:
    """Keeps one engine loaded with the options last asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._options: EngineOptions | None = None
        self._task: asyncio.Task[Loaded] | None = None
        self.loaded: Loaded | None = None

    async def ensure(self, options: EngineOptions) -> TurnEvents:
        """Events of a start, none if the engine already runs so. Raises HotslotError, or CancelledError on `cancel`."""
        if self._engine.is_running and self._options == options and self.loaded is not None:
            return
        self.loaded = None
        queue: asyncio.Queue[LoadProgressed | None] = asyncio.Queue()
        task = self._task = asyncio.create_task(self._engine.start(options, queue.put_nowait))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        estimate = LoadEstimate()
        try:
            while (progress := await queue.get()) is not None:
                yield EngineStarting(progress.phase, fraction_done(progress), estimate.describe(progress))
            self.loaded = await task
        finally:
            self._task = None
            task.cancel()
        self._options = options
        yield EngineReady(self.loaded.model_name, self.loaded.stats)
        if self.loaded.notice:
            yield NoticeShown(self.loaded.notice)

    def cancel(self) -> None:
        """Give up a start in progress."""
        if self._task is not None:
            self._task.cancel()


class LoadEstimate:
    """Bytes and time left of the phase of loading that runs, from the speed it has had so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase = ""
        self._started_s = 0.0

    def describe(self, progress: LoadProgressed) -> str:
        """'3.2 of 16.3 GB, 12 s left'; no time in the first second, nothing for phases too small to wait for."""
        now_s = self._clock()
        if progress.phase != self._phase:
            self._phase, self._started_s = progress.phase, now_s
        if progress.total_bytes < _LEAST_BYTES:
            return ""
        done, total, elapsed_s = progress.done_bytes, progress.total_bytes, now_s - self._started_s
        text = f"{done / 1e9:.1f} of {total / 1e9:.1f} GB"
        if elapsed_s < 1 or not done:
            return text
        seconds_left = math.ceil(elapsed_s * (total - done) / done)
        return (
            f"{text}, {seconds_left // 60} min {seconds_left % 60} s left"
            if seconds_left >= 60
            else (f"{text}, {seconds_left} s left")
        )


def fraction_done(progress: LoadProgressed) -> float:
    """0..1 over all phases."""
    phases = list(PHASE_SHARES)
    before = sum(PHASE_SHARES[phase] for phase in phases[: phases.index(progress.phase)])
    done = progress.done_bytes / progress.total_bytes if progress.total_bytes else 1.0
    return min(1.0, before + PHASE_SHARES[progress.phase] * min(1.0, done))
