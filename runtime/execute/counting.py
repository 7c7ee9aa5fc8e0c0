"""Counts the tokens of a prompt. Owns a thread for it: a long document must not hold up a stream that decodes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from runtime.execute.admission import Admission
from runtime.execute.failures import failure
from runtime.protocol import CountTokens, Event, TokensCounted


class TokenCounting:
    """Answers each `CountTokens` with one event, which may come from the thread."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send
        self._thread = ThreadPoolExecutor(1, "token-counter")

    def answer(self, admission: Admission, command: CountTokens, can_wait: bool) -> None:
        """Now where nothing else is to be done, else on the thread. What goes wrong becomes the event."""
        if can_wait:
            self._count(admission, command)
        else:
            self._thread.submit(self._count, admission, command)

    def _count(self, admission: Admission, command: CountTokens) -> None:
        event: Event
        try:
            event = TokensCounted(command.request_id, admission.count_tokens(command))
        except Exception as error:
            event = failure(command.request_id, "The messages could not be read", error)
        self._send(event)
