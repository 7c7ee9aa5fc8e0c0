"""Whose step is next: chats before side calls, chunks and decode steps in turn. Plans in ids; knows no pages.

After a chunk, those of its kind that decode come first, and after a step of side calls alone the chats do: so a chat's
token waits for one chunk at most. Among those that have a chunk to compute, the one served longest ago is next; side
calls share one, since a chunk moves nearly the same experts whoever's tokens are in it. A chat's is its own, and so are
its bits.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

from runtime.schedule.request import Sequence
from runtime.schedule.time_share import TimeShare


@dataclass(frozen=True)
class Turn:
    """Sequences of the next step: those with a chunk to compute, the first of them in any case and the others as far as
    it leaves room, or all that decode a token in it."""

    sequences: tuple[Sequence, ...]
    is_chunk: bool


class _Line:
    """Sequences of one kind: a chunk and a decode step in turn."""

    def __init__(self, shares_chunks: bool) -> None:
        self._shares_chunks = shares_chunks
        self._was_chunk = False
        self._num_turns = 0

    def choose(self, sequences: Items[Sequence]) -> Turn:
        """Of sequences that can all take a step; at least one."""
        decoding = tuple(sequence for sequence in sequences if sequence.phase == "decode")
        chunks = [sequence for sequence in sequences if sequence.phase != "decode"]
        if chunks and not (decoding and self._was_chunk):
            urgent, *others = sorted(chunks, key=_urgency)
            if not self._shares_chunks or not urgent.can_share_chunk:
                others = []
            return Turn((urgent, *(other for other in others if other.can_share_chunk)), is_chunk=True)
        return Turn(decoding, is_chunk=False)

    def took(self, turn: Turn) -> None:
        """The turn is taken."""
        self._was_chunk = turn.is_chunk
        self._num_turns += 1
        if turn.is_chunk:
            turn.sequences[0].last_chunk_turn = self._num_turns


def _urgency(sequence: Sequence) -> tuple[bool, int]:
    """Of a chunk, the least first. Others wait until what closes has ended, and it is but one token."""
    return sequence.phase != "closing", sequence.last_chunk_turn


class Turns:
    """Decides step by step; `time_share` says what side calls may take beside a chat."""

    def __init__(self, time_share: TimeShare) -> None:
        self._time_share = time_share
        self._chats, self._side_calls = _Line(shares_chunks=False), _Line(shares_chunks=True)
        self._was_side_step = False

    def choose(self, sequences: Items[Sequence]) -> Turn:
        """The next turn among sequences that can all take a step; at least one."""
        chats = [sequence for sequence in sequences if not sequence.is_side_call]
        side_calls = [sequence for sequence in sequences if sequence.is_side_call]
        chat_turn = self._chats.choose(chats) if chats else None
        side_turn = self._side_calls.choose(side_calls) if side_calls else None
        if chat_turn is not None and side_turn is not None:
            chat_turn, side_turn = self._settle(chat_turn, side_turn)
        if chat_turn is not None:
            self._chats.took(chat_turn)
        if side_turn is not None:
            self._side_calls.took(side_turn)
        self._was_side_step = bool(chats) and chat_turn is None
        parts = [turn for turn in (chat_turn, side_turn) if turn is not None]
        return Turn(tuple(sequence for part in parts for sequence in part.sequences), parts[0].is_chunk)

    def _settle(self, chat_turn: Turn, side_turn: Turn) -> tuple[Turn | None, Turn | None]:
        """One of the two, or both in one decode step."""
        if not chat_turn.is_chunk and not side_turn.is_chunk:
            riders = side_turn.sequences[
                : self._time_share.num_riders(len(chat_turn.sequences), len(side_turn.sequences))
            ]
            return chat_turn, Turn(riders, is_chunk=False) if riders else None
        if self._time_share.has_time and not self._was_side_step:
            return None, side_turn
        return chat_turn, None
