"""A document as marked blocks: the pieces that a model reads, a search finds and a citation names.

The form is `[p.3] text` with a blank line between blocks for pages, `[line 12] text` a line for everything else. A
document of one line needs no mark. Blocks of a stored document are addressed by number, so they are made the same way
for ever: what changes here must keep the blocks of older documents.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.documents.wrapping import continues, wrap_width
from app.messages import PAGE_BREAK, Attachment, DocumentKind

MAX_BLOCK_CHARS = 2000
_PACKED_CHARS = 600
"""Short paragraphs of one page share a mark up to here."""
_MOST_WRAPPED_LINES = 60
"""More lines without a blank one are a list, a log or a table, whatever their length."""
_SENTENCE_ENDS = (".", "!", "?", ":", ";")


@dataclass(frozen=True, slots=True)
class Block:
    """`place` is the page, or the line where the block begins, counted from 1."""

    place: int
    text: str


def blocks_of(document: Attachment) -> tuple[Block, ...]:
    """All blocks of the document in order; none of its words is left out."""
    return _split(document.text, document.kind)


def mark_of(place: int, kind: DocumentKind) -> str:
    """How a place is named in the text that the model reads, and in its answer."""
    return f"[p.{place}]" if kind == "pages" else f"[line {place}]"


def marked(document: Attachment, blocks: Sequence[Block]) -> str:
    """These blocks of the document as the model reads them."""
    kind = document.kind
    if kind != "pages" and len(blocks_of(document)) == 1:
        return blocks[0].text if blocks else ""
    joint = "\n\n" if kind == "pages" else "\n"
    return joint.join(f"{mark_of(block.place, kind)} {block.text}" if block.text else "" for block in blocks)


@lru_cache(maxsize=4)
def _split(text: str, kind: DocumentKind) -> tuple[Block, ...]:
    if kind == "pages":
        blocks = _page_blocks(text)
    elif kind == "code":
        blocks = (Block(number, line.rstrip()) for number, line in enumerate(text.rstrip("\n").split("\n"), 1))
    else:
        blocks = _paragraphs(text)
    return tuple(piece for block in blocks for piece in _divided(block))


def _page_blocks(text: str) -> Iterator[Block]:
    for number, page in enumerate(text.split(PAGE_BREAK), 1):
        packed: list[str] = []
        for paragraph in filter(str.strip, page.split("\n")):
            if packed and sum(map(len, packed)) + len(paragraph) > _PACKED_CHARS:
                yield Block(number, "\n".join(packed))
                packed = []
            packed.append(paragraph.strip())
        if packed:
            yield Block(number, "\n".join(packed))


def _paragraphs(text: str) -> Iterator[Block]:
    """Lines, those of wrapped prose put together; a fence of Markdown keeps its lines."""
    group: list[str] = []
    first, is_fenced = 1, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        if line.strip() and not is_fence and not is_fenced:
            first = first if group else number
            group.append(line)
            continue
        yield from _joined(group, first)
        group = []
        is_fenced ^= is_fence
        if line.strip():
            yield Block(number, line.rstrip())


def _joined(lines: Sequence[str], first: int) -> Iterator[Block]:
    """The blocks of lines that stand together, the first of which has this number."""
    width = wrap_width(lines)
    num_open = sum(not line.rstrip().endswith(_SENTENCE_ENDS) for line in lines[:-1])
    if 2 * num_open <= len(lines) - 1 or len(lines) > _MOST_WRAPPED_LINES:
        width = 0
    start, text = first, ""
    for number, line in enumerate(lines, first):
        if text and continues(lines[number - first - 1], line, width):
            text += " " + line.strip()
            continue
        if text:
            yield Block(start, text)
        start, text = number, line.rstrip()
    if text:
        yield Block(start, text)


def _divided(block: Block) -> Iterator[Block]:
    """A block that is too long to be a place in a text, in pieces that end with a sentence or at least a word."""
    text, start = block.text, 0
    while len(text) - start > MAX_BLOCK_CHARS:
        head = text[start : start + MAX_BLOCK_CHARS]
        size = max(head.rfind(". ") + 1, head.rfind("\n"), head.rfind("。") + 1)
        size = size if size > MAX_BLOCK_CHARS // 2 else head.rfind(" ")
        size = size if size > MAX_BLOCK_CHARS // 2 else MAX_BLOCK_CHARS
        yield Block(block.place, head[:size].rstrip())
        start += size
        while start < len(text) and text[start].isspace():
            start += 1
    if start < len(text) or not text:
        yield Block(block.place, text[start:])
