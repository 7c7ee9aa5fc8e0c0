"""Blocking work in a thread of its own, which is told when nobody waits for it any more."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(work: Callable[[threading.Event], Result]) -> Result:
    """What `work` returns. It gets an event that is set on cancelling, and should look at it now and then.

    The thread is a daemon: no exit ever waits for a disk that hangs, or for a key.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    is_cancelled = threading.Event()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work(is_cancelled)
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # The loop has ended and no longer cares.
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="blocking-work", daemon=True).start()
    try:
        return await future
    finally:
        is_cancelled.set()
