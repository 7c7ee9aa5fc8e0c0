"""What decode routed and missed, in total and over the last 64 tokens. An expert counts once per layer and step."""

from collections import deque

WINDOW_TOKENS = 64


class SlotCounters:
    """Counts decode only. A step is one token of the window, whatever its number of rows."""

    def __init__(self) -> None:
        self.num_routed = 0
        self.num_missed = 0
        self.num_missed_bytes = 0
        """Bytes that decode copied into slots."""
        self.num_from_disk = 0
        """Of the missed, those that were not in host memory either."""
        self._window: deque[tuple[int, int, int]] = deque(maxlen=WINDOW_TOKENS)
        self._step_routed = 0
        self._step_missed = 0
        self._step_from_disk = 0

    def begin_step(self) -> None:
        """Close the step before."""
        if self._step_routed:
            self._window.append((self._step_routed, self._step_missed, self._step_from_disk))
        self._step_routed = self._step_missed = self._step_from_disk = 0

    def note(self, num_routed: int, num_missed: int, bytes_per_miss: int = 0) -> None:
        """One layer of the step that runs."""
        self.num_routed += num_routed
        self.num_missed += num_missed
        self.num_missed_bytes += num_missed * bytes_per_miss
        self._step_routed += num_routed
        self._step_missed += num_missed

    def note_from_disk(self, num_experts: int) -> None:
        """So many of a layer's misses are read from the disk."""
        self.num_from_disk += num_experts
        self._step_from_disk += num_experts

    def note_step(self, num_routed: int, num_missed: int, num_missed_bytes: int, num_from_disk: int = 0) -> None:
        """A whole step that a device counted."""
        self.begin_step()
        self.note(num_routed, num_missed)
        self.note_from_disk(num_from_disk)
        self.num_missed_bytes += num_missed_bytes

    @property
    def hit_rate(self) -> float | None:
        """1 - missed / routed over the last 64 tokens, the one in progress included; None before the first."""
        num_routed, num_missed, _ = self._last_tokens()
        return None if num_routed == 0 else 1.0 - num_missed / num_routed

    @property
    def disk_rate(self) -> float | None:
        """Share of the routed over the same tokens that was read from the disk; None before the first."""
        num_routed, _, num_from_disk = self._last_tokens()
        return None if num_routed == 0 else num_from_disk / num_routed

    def _last_tokens(self) -> tuple[int, int, int]:
        step = (self._step_routed, self._step_missed, self._step_from_disk)
        routed, missed, from_disk = zip(*[*self._window, step][-WINDOW_TOKENS:], strict=True)
        return sum(routed), sum(missed), sum(from_disk)
