"""Sequences that wait for their turn: chats before side calls, each kind first come, first served."""

from collections import deque

from runtime.schedule.request import Sequence


class WaitingQueue:
    """Two lines; the head is that of the chats while there is one."""

    def __init__(self) -> None:
        self._chats: deque[Sequence] = deque()
        self._side_calls: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._chats) + len(self._side_calls)

    @property
    def head(self) -> Sequence | None:
        """Who is next; nobody overtakes it."""
        line = self._chats or self._side_calls
        return line[0] if line else None

    def push(self, sequence: Sequence) -> None:
        """To the end of its line."""
        self._line(sequence).append(sequence)

    def push_back(self, sequence: Sequence) -> None:
        """It ran already and was paused: to the front of its line."""
        self._line(sequence).appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take it out, wherever it stands."""
        self._line(sequence).remove(sequence)

    def find(self, sequence_id: str) -> Sequence | None:
        """The waiting sequence of this id."""
        both = (*self._chats, *self._side_calls)
        return next((sequence for sequence in both if sequence.sequence_id == sequence_id), None)

    def _line(self, sequence: Sequence) -> deque[Sequence]:
        return self._side_calls if sequence.is_side_call else self._chats
