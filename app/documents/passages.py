"""Passages: neighbouring blocks of a document, the unit that a search finds and a side call reads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.documents.blocks import Block, blocks_of, mark_of, marked
from app.messages import Attachment

SEARCHED_CHARS = 800
"""A passage that is searched for: a paragraph or a few, as long as an answer's context needs to be."""


@dataclass(frozen=True)
class Passage:
    """Blocks [first, end) of one document."""

    first: int
    end: int

    def text(self, document: Attachment) -> str:
        """As the model reads it, with marks."""
        return marked(document, blocks_of(document)[self.first : self.end])

    def place(self, document: Attachment) -> str:
        """Where it stands, in words: `p.3`, `p.3 to 4`, `line 12 to 30`."""
        blocks = blocks_of(document)[self.first : self.end]
        first, last = blocks[0].place, blocks[-1].place
        name = mark_of(first, document.kind).strip("[]")
        return name if first == last else f"{name} to {last}"


def searched_passages(document: Attachment) -> tuple[Passage, ...]:
    """The whole document in passages to be searched; none of them reaches over the end of a page."""
    return tuple(_grouped(blocks_of(document), SEARCHED_CHARS, document.kind == "pages"))


def pieces_of(document: Attachment, max_chars: int) -> tuple[Passage, ...]:
    """The whole document in as few pieces as hold at most so many characters each, a longer block being one."""
    return tuple(_grouped(blocks_of(document), max_chars, False))


def _grouped(blocks: Sequence[Block], max_chars: int, ends_with_page: bool) -> Iterable[Passage]:
    first, num_chars = 0, 0
    for number, block in enumerate(blocks):
        # A mark and a line end belong to every block.
        cost = len(block.text) + 12
        is_new_page = ends_with_page and number > 0 and block.place != blocks[number - 1].place
        if number > first and (num_chars + cost > max_chars or is_new_page):
            yield Passage(first, number)
            first, num_chars = number, 0
        num_chars += cost
    if blocks:
        yield Passage(first, len(blocks))


def merged(passages: Iterable[Passage]) -> tuple[tuple[int, int], ...]:
    """The blocks of these passages as ascending ranges that do not touch."""
    ranges: list[tuple[int, int]] = []
    for passage in sorted(passages, key=lambda passage: passage.first):
        if ranges and passage.first <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], passage.end))
        else:
            ranges.append((passage.first, passage.end))
    return tuple(ranges)
