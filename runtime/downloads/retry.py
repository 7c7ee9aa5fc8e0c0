"""When to try again: what may pass by itself, how long to wait, and when to give up."""

import email.utils
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event

from runtime.errors import DownloadError


class Retry(Exception):  # noqa: N818 - an instruction to the loop, never shown as an error.
    """This attempt failed in a way that may pass; `wait_s` is what the server asked for."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_s = wait_s


class StoppedError(Exception):
    """Someone asked to stop."""


@dataclass(frozen=True)
class RetryRules:
    """Seconds, and failures in a row without progress."""

    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    most_asked_wait_s: float = 600.0
    """A server that asks for more is not waited for."""
    most_failures: int = 8


class RetryLoop:
    """Counts failures in a row of one thing; waits between them, unless someone asks to stop."""

    def __init__(self, what: str, rules: RetryRules, stop: Event, tell: Callable[[str, str, float], None]) -> None:
        self._what, self._rules, self._stop, self._tell = what, rules, stop, tell
        self._num_failures = 0

    def after(self, retry: Retry, has_progressed: bool) -> None:
        """Wait for the next attempt. Raises DownloadError when it is time to give up, StoppedError when asked to."""
        wait_s = self.next_wait_s(retry, has_progressed)
        if wait_s:
            self._tell(self._what, retry.reason, wait_s)
        self.wait(wait_s)

    def next_wait_s(self, retry: Retry, has_progressed: bool) -> float:
        """Count this failure; seconds until the next attempt. Raises DownloadError when it is time to give up."""
        self._num_failures = 1 if has_progressed else self._num_failures + 1
        rules = self._rules
        if self._num_failures > rules.most_failures:
            raise DownloadError(
                f"{self._what}: gave up after {rules.most_failures} attempts: {retry.reason}; "
                "pull again later, what was fetched is kept"
            )
        wait_s = self._wait_s(retry, has_progressed)
        if wait_s > rules.most_asked_wait_s:
            raise DownloadError(
                f"{self._what}: {retry.reason} and asks to wait {wait_s:.0f} s; "
                "pull again then, what was fetched is kept"
            )
        return wait_s

    def wait(self, wait_s: float) -> None:
        """Raises StoppedError when asked to stop meanwhile."""
        if self._stop.wait(wait_s):
            raise StoppedError

    def _wait_s(self, retry: Retry, has_progressed: bool) -> float:
        if retry.wait_s is not None:
            return retry.wait_s
        if has_progressed:
            return 0.0
        longest = min(self._rules.longest_wait_s, self._rules.first_wait_s * 2.0 ** (self._num_failures - 1))
        return longest * random.uniform(0.5, 1.0)


def wait_named_by(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, which may be a date; None where there is none that can be read."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal() and len(value) < 10:
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, at.timestamp() - time.time())
