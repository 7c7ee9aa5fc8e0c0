"""Work that can't be told to stop, such as a request inside a library: left alone when nobody waits for it any more."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import TypeVar

from runtime.downloads.retry import StoppedError

Result = TypeVar("Result")
_LOOK_S = 0.05


def until_stopped(work: Callable[[], Result], stop: threading.Event) -> Result:
    """What `work` returns or raises. Raises StoppedError once `stop` is set, and whatever interrupts this thread.

    `work` then ends by itself, in a thread that no exit waits for.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="unattended", daemon=True).start()
    while not stop.is_set():
        try:
            return future.result(_LOOK_S)
        except NotYetError:
            if future.done():
                # It ended just now, or the error is the work's own.
                return future.result()
    raise StoppedError
