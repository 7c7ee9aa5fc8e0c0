"""How many side calls ride along in a chat's decode step: all, or the first alone. Told durations; looks at no clock.

Where a row costs little, all do. Where each brings experts of its own that must be moved, several at once push out each
other's, too, and then one after the other has more tokens for the same time.
"""

_TRIAL_STEPS = 64
"""So many steps after it was last measured, the other number is tried again."""
_RUN_STEPS = 8
"""A number is kept for so many steps."""
_COLD_STEPS = 2
"""The first of them don't count: whoever rides finds few of its experts."""
_WEIGHT = 0.2
"""Of the newest step in a running mean."""
_CLEARLY = 0.9
"""One at a time must be so much cheaper than all together."""


class RideSize:
    """Compares the time that a side call's token takes alone with what it takes among others."""

    def __init__(self) -> None:
        self._one, self._all = _Cost(), _Cost()
        self._last = self._all
        self._num_in_run = 0

    def choose(self, num_decoding: int) -> int:
        """How many of so many; at least one of them."""
        chosen = self._last
        if not 0 < self._num_in_run < _RUN_STEPS:
            is_one_cheaper = self._one.row_s < _CLEARLY * self._all.row_s
            cheaper, other = (self._one, self._all) if is_one_cheaper else (self._all, self._one)
            chosen = other if other.age >= _TRIAL_STEPS else cheaper
        return min(1, num_decoding) if chosen is self._one else num_decoding

    def note(self, num_riders: int, seconds: float) -> None:
        """So many riders took `seconds` of a step."""
        taken, other = (self._one, self._all) if num_riders == 1 else (self._all, self._one)
        self._num_in_run = self._num_in_run % _RUN_STEPS + 1 if taken is self._last else 1
        self._last = taken
        if self._num_in_run > _COLD_STEPS:
            taken.note(seconds / num_riders)
        other.age += 1


class _Cost:
    """Seconds per row, 0 before the first; `age` counts the steps of the other kind since it was measured."""

    def __init__(self) -> None:
        self.row_s = 0.0
        self.age = 0

    def note(self, row_s: float) -> None:
        is_outdated = self.row_s == 0.0 or self.age >= _TRIAL_STEPS
        self.row_s = row_s if is_outdated else self.row_s + _WEIGHT * (row_s - self.row_s)
        self.age = 0
