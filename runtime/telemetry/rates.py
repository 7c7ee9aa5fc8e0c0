"""Tokens per second over a sliding window of time. Owns no clock: callers pass seconds of a monotonic one."""

from collections import deque


class RateWindow:
    """Rate over the steps that ended in the last `window_s`; a pause ends the window rather than diluting it."""

    def __init__(self, window_s: float = 3.0) -> None:
        self._window_s = window_s
        self._steps: deque[tuple[float, float, int]] = deque()
        self._busy_s = 0.0
        self._num_tokens = 0

    def add(self, end_s: float, busy_s: float, num_tokens: int) -> None:
        """One step that ended at `end_s`, took `busy_s` and made `num_tokens`."""
        self._steps.append((end_s, busy_s, num_tokens))
        self._busy_s += busy_s
        self._num_tokens += num_tokens
        while self._steps[0][0] < end_s - self._window_s:
            _, old_busy_s, old_tokens = self._steps.popleft()
            self._busy_s -= old_busy_s
            self._num_tokens -= old_tokens

    @property
    def tokens_per_second(self) -> float | None:
        """None until something was measured; stays at the last window's value while nothing runs."""
        if not self._steps or self._busy_s <= 0.0:
            return None
        return self._num_tokens / self._busy_s
