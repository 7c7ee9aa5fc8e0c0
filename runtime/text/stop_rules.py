"""When an answer ends: end-of-turn ids and the user's stop texts."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class StopResult:
    """Text that may be shown, and the stop text that was completed, if one was."""

    text: str
    stopped_by: str | None = None


class StopRules:
    """Holds back only what may be the beginning of a stop text.

    The stop text that is completed first ends the answer; of those completed by the same character, the longest.
    """

    def __init__(self, stop_ids: Iterable[int], stop_texts: Iterable[str] = ()) -> None:
        self.stop_ids = frozenset(stop_ids)
        self._stop_texts = tuple(text for text in stop_texts if text)
        self._held = ""

    def is_stop_id(self, token_id: int) -> bool:
        """Whether this token ends the answer."""
        return token_id in self.stop_ids

    def push(self, text: str) -> StopResult:
        """Add text; after `stopped_by` is set nothing more may be pushed."""
        seen = self._held + text
        matches = [(seen.find(stop) + len(stop), -len(stop), stop) for stop in self._stop_texts if stop in seen]
        if matches:
            end, negative_length, stop = min(matches)
            self._held = ""
            return StopResult(seen[: end + negative_length], stop)
        num_held = max((_longest_opening(seen, stop) for stop in self._stop_texts), default=0)
        self._held = seen[len(seen) - num_held :]
        return StopResult(seen[: len(seen) - num_held])

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held


def _longest_opening(text: str, stop: str) -> int:
    """Length of the longest proper prefix of `stop` that `text` ends with."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
