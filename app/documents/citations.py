"""Citations in an answer, `[p.3]` or `[line 12]`, and the passage of a document that each one names.

An answer may quote more or less exactly: what is shown of the document is always the document's own text. One that
quotes exactly and names the wrong place is shown where its words stand, and the passage says so.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.documents.blocks import blocks_of
from app.documents.passages import Passage
from app.messages import Attachment

_CITATION = re.compile(
    r"\[(?P<kind>pp?\.|pages?|lines?|l\.)\s*(?P<first>\d{1,7})(?:\s*(?:-|–|to)\s*(?:p\.\s*)?(?P<last>\d{1,7}))?\]",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"[\"“„«]([^\"“”„«»]{3,})[\"”»]")
_LEAST_QUOTE_CHARS = 12
"""Of words that are looked for where nobody pointed: shorter ones stand anywhere."""
_REACH_CHARS = 600
"""A citation belongs to what the answer says up to here before it."""


@dataclass(frozen=True)
class Citation:
    """Where it stands in the answer, [start, end), and the pages or lines it names."""

    start: int
    end: int
    is_page: bool
    first_place: int
    last_place: int


@dataclass(frozen=True)
class CitedPassage:
    """What a citation names: `excerpt` is the document's own text, without marks.

    `quote` is what the answer says word for word as it stands there, in quotation marks or not, '' where nothing is.
    `is_elsewhere`: the citation names another place, which has no such words.
    """

    document: Attachment
    passage: Passage
    excerpt: str
    quote: str
    is_elsewhere: bool = False

    @property
    def place(self) -> str:
        """`report.pdf, p.3`."""
        return f"{self.document.name}, {self.passage.place(self.document)}"


def find_citations(answer: str) -> tuple[Citation, ...]:
    """All citations of an answer in order."""
    return tuple(_to_citation(found) for found in _CITATION.finditer(answer))


def resolve(citation: Citation, answer: str, documents: Sequence[Attachment]) -> CitedPassage | None:
    """The passage that a citation of this answer names; None where no document has such a place or such words.

    `documents` are those of the conversation, the oldest first. Of several with that place it is the one that the
    answer quotes, else the one with most of its words, else the latest. Takes a second for 16 MiB.
    """
    said = _said_before(citation, answer)
    quotes = _quotes(said)
    known = _unique(documents)
    named = [place for document in known for place in _places(citation, document)]
    for is_elsewhere, places in ((False, reversed(named)), (True, _quoted_places(quotes, known[::-1]))):
        for document, passage in places:
            text = _plain(_text(document, passage))
            quote = next((quote for quote in quotes if quote in text), "")
            if quote:
                return CitedPassage(document, passage, _text(document, passage), quote, is_elsewhere)
    if not named:
        return None
    words = _words(said)
    document, passage = max(reversed(named), key=lambda place: len(words & _words(_text(*place))))
    return CitedPassage(document, passage, _text(document, passage), "")


def _to_citation(found: re.Match[str]) -> Citation:
    first = int(found["first"])
    last = int(found["last"] or first)
    return Citation(found.start(), found.end(), found["kind"].lower().startswith("p"), first, max(first, last))


def _said_before(citation: Citation, answer: str) -> str:
    """What the citation is for: the text after the citation before it; several in a row share theirs."""
    start = max(0, citation.start - _REACH_CHARS)
    before = answer[start : citation.start]
    pieces = [piece for piece in _CITATION.sub("\0", before).split("\0") if piece.strip(" ,;.\n")]
    return pieces[-1] if pieces else before


def _unique(documents: Iterable[Attachment]) -> list[Attachment]:
    """Each document once, in the order in which it was last shown."""
    latest = {(document.name, document.text): document for document in reversed(list(documents))}
    return list(reversed(latest.values()))


def _places(citation: Citation, document: Attachment) -> list[tuple[Attachment, Passage]]:
    """The blocks of the document at that place; a range of places is one passage."""
    if (document.kind == "pages") is not citation.is_page:
        return []
    places = [block.place for block in blocks_of(document)]
    first, end = bisect_left(places, citation.first_place), bisect_right(places, citation.last_place)
    is_line_in_text = not citation.is_page and 0 < citation.first_place <= document.text.count("\n") + 1
    if is_line_in_text and first > 0 and (first == len(places) or places[first] > citation.first_place):
        # In the middle of a paragraph, which begins before it.
        first -= 1
    if first >= end:
        return []
    if citation.first_place < citation.last_place:
        return [(document, Passage(first, end))]
    return [(document, Passage(number, number + 1)) for number in range(first, end)]


def _text(document: Attachment, passage: Passage) -> str:
    return "\n".join(block.text for block in blocks_of(document)[passage.first : passage.end])


def _quotes(said: str) -> list[str]:
    """What may stand in a document word for word: what is quoted, the last first, then the last sentence itself."""
    quoted = [_plain(quote) for quote in reversed(_QUOTE.findall(said))]
    sentence = re.split(r"(?<=[.!?:])\s+", said.strip())[-1].strip('"“”„«» ')
    return [*quoted, _plain(sentence)] if len(sentence) >= _LEAST_QUOTE_CHARS else quoted


def _quoted_places(quotes: Sequence[str], documents: Sequence[Attachment]) -> Iterator[tuple[Attachment, Passage]]:
    """Blocks that have one of the longer quotes."""
    long = [quote for quote in quotes if len(quote) >= _LEAST_QUOTE_CHARS]
    for document in documents if long else ():
        for number, block in enumerate(blocks_of(document)):
            text = _plain(block.text)
            if any(quote in text for quote in long):
                yield document, Passage(number, number + 1)


def _plain(text: str) -> str:
    """With single spaces: line ends don't matter to a quotation."""
    return " ".join(text.split())


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"\w{3,}", text)}
