"""A word to the user while a file or stdin is read that takes its time: a pipe waits for whoever writes to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from app.console import Console

QUIET_S = 3.0
"""So long nothing is said."""


@contextmanager
def said_while_reading(console: Console, name: str) -> Iterator[None]:
    """Says once, on stderr, what is still read after `QUIET_S`."""
    timer = Timer(QUIET_S, console.notice, [f"still reading {name}; Ctrl+C stops."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
