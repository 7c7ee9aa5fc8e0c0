"""How much step time side calls may take beside a chat. Told durations; looks at no clock.

Side calls earn time while the chat's steps run and pay for theirs. What a shared decode step took longer than the chat
alone is theirs, so riding along costs them little where it costs the chat little. So is what the chat's next steps take
longer than usual: the side calls' experts lie in slots that held the chat's.
"""

from runtime.schedule.ride_size import RideSize

_MOST_CREDIT_S = 0.1
"""Unused time is not hoarded: a burst of side steps would be felt in the chat."""
_MOST_DEBT_S = 0.25
"""Riders stay until so much is owed, and come back when it is paid: a rider's experts are there from its last step, if
that was not long ago."""
_SOLO_WEIGHT = 0.1
"""Of the newest step in the running mean of the chat's own decode steps."""
_DISTURBED_STEPS = 8
"""Steps of a chat alone after a side call had one, in which its experts come back."""
_MOST_UNSETTLED_STEPS = 128
"""In a row; then side calls wait until the chat's own duration is known again, which grows with the context."""
_WINDOW_S = 10.0


class TimeShare:
    """`share` is the side calls' part of step time while a chat runs, above 0 and below 1."""

    def __init__(self, share: float) -> None:
        self._earned_per_s = share / (1.0 - share)
        self._credit_s = 0.0
        self._is_riding = True
        self._solo_s: dict[int, float] = {}
        self._ride = RideSize()
        self._num_since_side = _DISTURBED_STEPS
        """Steps of chats alone since a side call had one."""
        self._num_unsettled = 0
        """Decode steps of chats since the last that nothing disturbed."""
        self._window_s = self._window_side_s = 0.0

    @property
    def has_time(self) -> bool:
        """A side call may take a step of its own."""
        return self._credit_s >= 0.0

    def num_riders(self, num_chat_rows: int, num_decoding: int) -> int:
        """How many of `num_decoding` side calls may ride along in a decode step of so many chats."""
        is_known = num_chat_rows in self._solo_s and self._num_unsettled < _MOST_UNSETTLED_STEPS
        if not is_known or not (self.has_time or self._is_riding):
            return 0
        # Fewer than all would leave time unused.
        has_plenty = self._credit_s >= _MOST_CREDIT_S
        return num_decoding if has_plenty else self._ride.choose(num_decoding)

    @property
    def used_share(self) -> float | None:
        """What side calls took of the last seconds in which they and a chat ran; None before the first."""
        return max(0.0, self._window_side_s / self._window_s) if self._window_s > 0.0 else None

    def note(self, num_chat_rows: int, num_side_rows: int, is_decode: bool, is_contended: bool, seconds: float) -> None:
        """A step took `seconds` while a chat ran; `is_contended` if side calls did too."""
        side_s = self._side_seconds(num_chat_rows, num_side_rows, is_decode, seconds)
        if is_decode and num_chat_rows:
            self._note_decode(num_chat_rows, num_side_rows, seconds, side_s)
        self._num_since_side = 0 if num_side_rows else self._num_since_side + 1
        credit_s = self._credit_s + (seconds - side_s) * self._earned_per_s - side_s
        self._credit_s = min(credit_s, _MOST_CREDIT_S if is_contended else 0.0)
        self._is_riding = self._credit_s >= (-_MOST_DEBT_S if self._is_riding else 0.0)
        if is_contended:
            kept = max(0.0, 1.0 - seconds / _WINDOW_S)
            self._window_s = self._window_s * kept + seconds
            self._window_side_s = self._window_side_s * kept + side_s

    def _note_decode(self, num_chat_rows: int, num_side_rows: int, seconds: float, side_s: float) -> None:
        self._num_unsettled += 1
        if num_side_rows:
            self._ride.note(num_side_rows, side_s)
        elif self._num_since_side >= _DISTURBED_STEPS:
            self._num_unsettled = 0
            solo_s = self._solo_s.setdefault(num_chat_rows, seconds)
            self._solo_s[num_chat_rows] = solo_s + _SOLO_WEIGHT * (seconds - solo_s)

    def _side_seconds(self, num_chat_rows: int, num_side_rows: int, is_decode: bool, seconds: float) -> float:
        if not num_chat_rows:
            return seconds
        is_disturbed = num_side_rows > 0 or self._num_since_side < _DISTURBED_STEPS
        if not is_decode or not is_disturbed or num_chat_rows not in self._solo_s:
            return 0.0
        # Below zero, too, where a step was faster than usual: noise is not to add up.
        return seconds - self._solo_s[num_chat_rows]
