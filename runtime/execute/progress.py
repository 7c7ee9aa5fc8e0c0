"""Reports how far loading is, often enough to watch and seldom enough to cost nothing."""

import time
from collections.abc import Callable

from runtime.protocol import Event, LoadPhase, LoadProgressed

_INTERVAL_S = 0.05


class LoadProgress:
    """Sends `LoadProgressed`; the first and last report of a phase always go out."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send
        self._sent_s = 0.0

    def report(self, phase: LoadPhase, done_bytes: int, total_bytes: int) -> None:
        """`done_bytes` of `total_bytes` of this phase are done."""
        now_s = time.monotonic()
        if 0 < done_bytes < total_bytes and now_s - self._sent_s < _INTERVAL_S:
            return
        self._sent_s = now_s
        self._send(LoadProgressed(phase, done_bytes, total_bytes))
