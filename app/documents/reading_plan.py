"""How a document is read for a question: whole where it fits, else the passages a search finds, else all, in pieces.

Pure: counts no tokens and asks no engine. `reading_plan` is given what the whole costs and how much room there is.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from app.documents.blocks import blocks_of, marked
from app.documents.passages import Passage, pieces_of
from app.documents.search import find_passages
from app.errors import ReadingError
from app.messages import Attachment, DocumentKind, ReadingMode

ReadingChoice = Literal["auto", "whole", "passages", "all"]
"""What the user asks for; `auto` leaves it to the plan."""

PIECE_TOKENS = 1500
"""Of a document for one side call: small enough to be read with care, and to leave the chat its share of time."""
LEAST_NOTE_TOKENS, MOST_NOTE_TOKENS = 24, 160
MOST_PASSAGE_TOKENS = 6000
"""Passages for one question, whatever the room: more of them dilute, and are computed anew each time."""
_SAFETY = 1.15
"""Tokens of a part are estimated by its share of the characters."""

_WANTS_ALL = re.compile(
    r"\b(summar(y|i[sz]e\w*|ies)|tl;?dr|overview|outline|gist|key (points|takeaways)|main (points|ideas|topics|themes)"
    r"|(whole|entire|complete|full) (document|text|file|book|report|paper|thing)|all (of (it|them)|the \w+|\w+s\b)"
    r"|(list|name|give|find|show)( me)? (all|each|every)|how many times|how often|throughout|overall|proof-?read"
    r"|what is (it|this|the (document|text|file|book|report|paper)) about|read (it|this|everything) all|read all)\b",
    re.IGNORECASE,
)
Ranges = tuple[tuple[int, int], ...]
"""Blocks of a document as ranges [first, end)."""


@dataclass(frozen=True)
class ReadingPlan:
    """How one document is read, and `why` in words that follow "report.pdf: ".

    `passages` are the passages found, in the order of the document, or the pieces to be read one by one; none where the
    document is read whole. `num_tokens` is what the message will show of it: an estimate unless it is the whole.
    `note_tokens` bounds what may be noted of each piece.
    """

    mode: ReadingMode
    passages: tuple[Passage, ...]
    why: str
    num_tokens: int
    note_tokens: int = 0


def reading_plan(
    document: Attachment,
    question: str,
    room_tokens: int,
    num_tokens: int,
    choice: ReadingChoice = "auto",
    shown: Ranges = (),
    because: str = "as chosen",
) -> ReadingPlan:
    """The plan for a document of `num_tokens` in a prompt with room for `room_tokens` of it.

    `shown` are blocks that the conversation has seen already, which are not shown again. `because` says why passages
    were the choice. Raises ReadingError where the choice can't be done.
    """
    if choice == "whole" or (choice == "auto" and num_tokens <= room_tokens):
        return _whole(document, room_tokens, num_tokens, choice)
    too_long = f"{num_tokens:,} tokens, room for {max(room_tokens, 0):,}"
    if choice == "all" or (choice == "auto" and wants_all(question)):
        why = "as chosen" if choice == "all" else f"{too_long}, and the question asks for all of it"
        return _pieces(document, room_tokens, num_tokens, why)
    found = find_passages(document, question)
    if found:
        why = because if choice == "passages" else too_long
        return _passages(document, found, room_tokens, num_tokens, shown, why)
    if choice == "passages":
        raise ReadingError(f"{document.name} has none of the question's words; ask in its words, or read all of it.")
    return _pieces(document, room_tokens, num_tokens, f"{too_long}, and none of the question's words are in it")


def wants_all(question: str) -> bool:
    """Whether only the whole document can answer: a summary, a list, a count; or there is no question at all."""
    return not question.strip() or _WANTS_ALL.search(question) is not None


def _whole(document: Attachment, room_tokens: int, num_tokens: int, choice: ReadingChoice) -> ReadingPlan:
    if num_tokens > room_tokens:
        raise ReadingError(
            f"{document.name} has {num_tokens:,} tokens and there is room for {max(room_tokens, 0):,}; read it by"
            " passages or all in pieces, or load the model with a larger context."
        )
    return ReadingPlan("whole", (), "as chosen" if choice == "whole" else "it fits", num_tokens)


def _passages(
    document: Attachment, found: Sequence[Passage], room_tokens: int, num_tokens: int, shown: Ranges, why: str
) -> ReadingPlan:
    """The best ones that fit in half of the room, in the order of the document; at least one, if any fits at all."""
    left = min(room_tokens // 2, MOST_PASSAGE_TOKENS)
    chosen: list[Passage] = []
    num_shown = 0
    for passage in found:
        cost = _tokens_of(document, (passage,), num_tokens)
        if not chosen and left < cost <= room_tokens:
            left = cost
        if any(first <= passage.first and passage.end <= end for first, end in shown):
            num_shown += 1
        elif cost <= left:
            chosen.append(passage)
            left -= cost
    if not chosen and not num_shown:
        raise ReadingError(
            f"{document.name} has passages for this question, but there is room for {max(room_tokens, 0):,} tokens"
            " only; start a new chat, or load the model with a larger context."
        )
    why += f": {len(chosen)} of {len(found)} found" + (f", {num_shown} shown before" if num_shown else "")
    ordered = tuple(sorted(chosen, key=lambda passage: passage.first))
    return ReadingPlan("passages", ordered, why, _tokens_of(document, ordered, num_tokens))


def _pieces(document: Attachment, room_tokens: int, num_tokens: int, why: str) -> ReadingPlan:
    characters_per_token = _num_chars(document) / max(num_tokens, 1)
    pieces = pieces_of(document, int(PIECE_TOKENS * characters_per_token / _SAFETY))
    note_tokens = min(MOST_NOTE_TOKENS, int(max(room_tokens, 0) / _SAFETY) // max(len(pieces), 1))
    if note_tokens < LEAST_NOTE_TOKENS:
        raise ReadingError(
            f"{document.name} would be read in {len(pieces):,} pieces, whose notes don't fit in the room of"
            f" {max(room_tokens, 0):,} tokens; ask about a part of it, or load the model with a larger context."
        )
    count = f"{len(pieces)} pieces" if len(pieces) != 1 else "1 piece"
    return ReadingPlan("all", pieces, f"{why}: {count}", note_tokens * len(pieces), note_tokens)


def _tokens_of(document: Attachment, passages: Collection[Passage], num_tokens: int) -> int:
    share = sum(len(passage.text(document)) for passage in passages) / max(_num_chars(document), 1)
    return int(num_tokens * share * _SAFETY) + 1


def _num_chars(document: Attachment) -> int:
    """Of the whole document as a model would read it, however it is read now."""
    return _num_marked_chars(document.text, document.kind)


@lru_cache(maxsize=8)
def _num_marked_chars(text: str, kind: DocumentKind) -> int:
    document = Attachment("", text, kind)
    return len(marked(document, blocks_of(document)))
