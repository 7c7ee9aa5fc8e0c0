"""Reads ahead what every chat begins with, system prompt and tools, so that the first message waits for less.

Only while nothing else runs: a turn that begins ends it, and goes on from what was read. Whatever goes wrong here costs
time and nothing else.
"""

import asyncio
from contextlib import aclosing
from dataclasses import replace

from app.engine import Engine
from app.errors import HotslotError
from app.messages import new_id
from runtime.options import SamplingOptions
from runtime.protocol import Generate, Loaded


class OpeningReader:
    """Reads one opening at a time, and none twice in a row."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._task: asyncio.Task[None] | None = None
        self._read: tuple[Loaded, Generate] | None = None
        """The last one that was read to its end, and by which start of the engine."""

    def start(self, loaded: Loaded, request: Generate) -> None:
        """Read the opening of a chat that `request` would begin; its messages are those before the user's first."""
        opening = replace(request, request_id="", kind="opening", sampling=SamplingOptions(max_tokens=1))
        has_content = bool(request.messages or request.tools)
        is_known = self._read is not None and self._read[0] is loaded and self._read[1] == opening
        if has_content and not is_known:
            self.give_way()
            self._task = asyncio.create_task(self._run(loaded, opening), name="opening")

    def give_way(self) -> None:
        """A turn begins."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def wait(self) -> None:
        """Until what was started is read, or has given way."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self, loaded: Loaded, opening: Generate) -> None:
        try:
            async with aclosing(self._engine.generate(replace(opening, request_id=new_id()))) as events:
                async for _ in events:
                    pass
        except HotslotError:
            # The first message meets the same engine, and its error is told.
            return
        self._read = (loaded, opening)
