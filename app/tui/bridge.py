"""Between a turn and the screen: collects events as they come, hands them over in order about 20 times a second.

The turn never waits for the screen: collecting only appends. The screen never falls behind: what came while it was
drawing is handed over in one piece, and slow drawing makes the next hand-over later, not the queue longer.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from app.chat.events import AnswerTextStreamed, StatsUpdated, TurnEnded, TurnEvent, TurnEvents
from app.errors import HotslotError

SHORTEST_PAUSE_S = 0.05
TYPING_PAUSE_S = 0.2
"""Between two hand-overs while the user types: a key that waits for less drawing is on the screen sooner."""
TYPING_S = 0.6
"""So long after a key the user counts as typing."""
LONGEST_PAUSE_S = 1.0
DRAWING_SHARE = 0.3
"""At most about this share of the event loop's time goes into drawing the answer."""


@dataclass
class TextPiece:
    """Joined text of one channel; `num_pieces` is about its number of tokens."""

    channel: Literal["text", "reasoning"]
    text: str
    num_pieces: int = 1


@dataclass(frozen=True)
class TurnOver:
    """Nothing more will come. `refusal` is one readable line if the turn was refused before it began, else ''."""

    refusal: str = ""


Delivered = TextPiece | TurnEvent | TurnOver


class TurnInbox:
    """Events that the screen has not taken yet. `announce` is called when it should, at most once until it does."""

    def __init__(self, announce: Callable[[], object]) -> None:
        self._announce = announce
        self._events: list[Delivered] = []
        self._figures: StatsUpdated | None = None
        """The newest ones; they do not part the text before them from the text after."""
        self._is_announced = False
        self._next_at = 0.0
        self._taken_at = 0.0
        self._typing_until = 0.0

    async def run(self, events: TurnEvents) -> None:
        """Collect a whole turn; the last thing delivered is a `TurnOver`, unless this is cancelled: the app ends."""
        refusal = ""
        try:
            async with aclosing(events):
                async for event in events:
                    self.put(event)
        except HotslotError as error:
            refusal = str(error)
        self.put(TurnOver(refusal))

    def put(self, event: TurnEvent | TurnOver) -> None:
        """Add an event; text joins the text before it."""
        last = self._events[-1] if self._events else None
        if isinstance(event, StatsUpdated):
            self._figures = event
        elif not isinstance(event, AnswerTextStreamed):
            self._flush_figures()
            self._events.append(event)
        elif isinstance(last, TextPiece) and last.channel == event.channel:
            last.text += event.text
            last.num_pieces += 1
        else:
            self._events.append(TextPiece(event.channel, event.text))
        if not self._is_announced:
            self._is_announced = True
            pause = 0.0 if isinstance(event, TurnEnded | TurnOver) else max(0.0, self._next_at - time.monotonic())
            asyncio.get_running_loop().call_later(pause, self._announce)

    def _flush_figures(self) -> None:
        if self._figures is not None:
            self._events.append(self._figures)
            self._figures = None

    def take(self) -> list[Delivered]:
        """Everything so far, for the screen to draw now; `note_drawn` must follow."""
        self._flush_figures()
        events, self._events = self._events, []
        self._taken_at = time.monotonic()
        return events

    def note_key(self) -> None:
        """The user typed: keys go before drawing for a while."""
        self._typing_until = time.monotonic() + TYPING_S

    def note_drawn(self) -> None:
        """The screen has drawn what it took."""
        now = time.monotonic()
        spent = now - self._taken_at
        shortest = TYPING_PAUSE_S if now < self._typing_until else SHORTEST_PAUSE_S
        pause = min(max(shortest, spent / DRAWING_SHARE - spent), LONGEST_PAUSE_S)
        self._next_at = now + pause
        self._is_announced = False
        if self._events or self._figures is not None:
            self._is_announced = True
            asyncio.get_running_loop().call_later(pause, self._announce)
