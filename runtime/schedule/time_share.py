"""How much step time side calls may take beside a chat. Told durations; looks at no clock.

Side calls earn time while the chat's steps run and pay for theirs. What a shared decode step took longer than the chat
alone is theirs, so riding along costs them little where it costs the chat little.
"""

_MOST_CREDIT_S = 0.1
"""Unused time is not hoarded: a burst of side steps would be felt in the chat."""
_SOLO_WEIGHT = 0.1
"""Of the newest step in the running mean of the chat's own decode steps."""
_MOST_SHARED_STEPS = 32
"""In a row; then one of the chat alone, so that its own duration stays known as the context grows."""
_WINDOW_S = 3.0


class TimeShare:
    """`share` is the side calls' part of step time while a chat runs, above 0 and below 1."""

    def __init__(self, share: float) -> None:
        self._earned_per_s = share / (1.0 - share)
        self._credit_s = 0.0
        self._solo_s: dict[int, float] = {}
        self._num_shared_in_row = 0
        self._window_s = self._window_side_s = 0.0

    @property
    def has_time(self) -> bool:
        """A side call may take a step of its own."""
        return self._credit_s >= 0.0

    def may_share_decode(self, num_chat_rows: int) -> bool:
        """Side calls may ride along in a decode step of so many chats."""
        return self.has_time and num_chat_rows in self._solo_s and self._num_shared_in_row < _MOST_SHARED_STEPS

    @property
    def used_share(self) -> float | None:
        """What side calls took of the last seconds in which they and a chat ran; None before the first."""
        return self._window_side_s / self._window_s if self._window_s > 0.0 else None

    def note(self, num_chat_rows: int, num_side_rows: int, is_decode: bool, is_contended: bool, seconds: float) -> None:
        """A step took `seconds` while a chat ran; `is_contended` if side calls did too."""
        side_s = self._side_seconds(num_chat_rows, num_side_rows, seconds)
        if is_decode and num_chat_rows:
            self._num_shared_in_row = self._num_shared_in_row + 1 if num_side_rows else 0
            if not num_side_rows:
                solo_s = self._solo_s.setdefault(num_chat_rows, seconds)
                self._solo_s[num_chat_rows] = solo_s + _SOLO_WEIGHT * (seconds - solo_s)
        credit_s = self._credit_s + (seconds - side_s) * self._earned_per_s - side_s
        self._credit_s = min(credit_s, _MOST_CREDIT_S if is_contended else 0.0)
        if is_contended:
            kept = max(0.0, 1.0 - seconds / _WINDOW_S)
            self._window_s = self._window_s * kept + seconds
            self._window_side_s = self._window_side_s * kept + side_s

    def _side_seconds(self, num_chat_rows: int, num_side_rows: int, seconds: float) -> float:
        if not num_side_rows:
            return 0.0
        return max(0.0, seconds - self._solo_s[num_chat_rows]) if num_chat_rows else seconds
