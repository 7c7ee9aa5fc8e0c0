"""Starting the engine as events: loads on demand, restarts when an option of loading changed, can be cancelled."""

import asyncio

from app.chat.events import EngineReady, EngineStarting, NoticeShown, TurnEvents
from app.engine import Engine
from runtime.options import EngineOptions
from runtime.protocol import Loaded, LoadProgressed

PHASE_SHARES = {"opening": 0.02, "dense": 0.2, "experts": 0.6, "slots": 0.1, "warmup": 0.08}
"""Share of each loading phase in the whole, for a bar that moves evenly enough."""


class EngineStarter:
    """Keeps one engine loaded with the options last asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._options: EngineOptions | None = None
        self._task: asyncio.Task[Loaded] | None = None
        self.loaded: Loaded | None = None

    @property
    def is_starting(self) -> bool:
        return self._task is not None

    async def ensure(self, options: EngineOptions) -> TurnEvents:
        """Events of a start, none if the engine already runs so. Raises HotslotError, or CancelledError on `cancel`."""
        if self._engine.is_running and self._options == options and self.loaded is not None:
            return
        self.loaded = None
        queue: asyncio.Queue[LoadProgressed | None] = asyncio.Queue()
        task = self._task = asyncio.create_task(self._engine.start(options, queue.put_nowait))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (progress := await queue.get()) is not None:
                yield EngineStarting(progress.phase, fraction_done(progress))
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


def fraction_done(progress: LoadProgressed) -> float:
    """0..1 over all phases."""
    phases = list(PHASE_SHARES)
    before = sum(PHASE_SHARES[phase] for phase in phases[: phases.index(progress.phase)])
    done = progress.done_bytes / progress.total_bytes if progress.total_bytes else 1.0
    return min(1.0, before + PHASE_SHARES[progress.phase] * min(1.0, done))
