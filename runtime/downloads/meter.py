"""How much of a download is here, how fast it comes and how long the rest takes. Safe for several threads."""

import time
from collections import deque
from threading import Lock

from runtime.downloads.events import DownloadProgressed

WINDOW_S = 10.0
"""Speed is that of the last seconds: a pause before them says nothing about the rest."""


class TransferMeter:
    """Counts bytes of `num_files` files with `total_bytes` in all."""

    def __init__(self, total_bytes: int, num_files: int) -> None:
        self._total_bytes, self._num_files = total_bytes, num_files
        self._done_bytes = self._fetched_bytes = self._num_done = 0
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._lock = Lock()

    @property
    def fetched_bytes(self) -> int:
        """Over the network, thrown away ones included."""
        return self._fetched_bytes

    @property
    def missing_bytes(self) -> int:
        return self._total_bytes - self._done_bytes

    def move(self, num_bytes: int, is_fetched: bool) -> None:
        with self._lock:
            self._done_bytes += num_bytes
            self._fetched_bytes += num_bytes if is_fetched else 0

    def end_file(self) -> None:
        with self._lock:
            self._num_done += 1

    def progress(self) -> DownloadProgressed:
        with self._lock:
            now = time.monotonic()
            self._samples.append((now, self._fetched_bytes))
            while len(self._samples) > 2 and self._samples[0][0] < now - WINDOW_S:
                self._samples.popleft()
            start, bytes_then = self._samples[0]
            speed = (self._fetched_bytes - bytes_then) / (now - start) if now > start else 0.0
            left = self._total_bytes - self._done_bytes
            seconds_left = left / speed if speed > 0 else None
            return DownloadProgressed(
                self._done_bytes, self._total_bytes, speed, seconds_left, self._num_done, self._num_files
            )

    def check_integrity(self) -> None:
        assert 0 <= self._done_bytes <= self._total_bytes, (self._done_bytes, self._total_bytes)
        assert 0 <= self._num_done <= self._num_files
