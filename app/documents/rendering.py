"""What a message shows the model of a document: the same characters every time, so that later turns reuse them."""

import re

from app.documents.blocks import blocks_of, mark_of, marked
from app.messages import Attachment

_LABELS = {"whole": "", "passages": " (passages)", "all": " (notes)"}


def shown_text(document: Attachment) -> str:
    """The whole document, the passages chosen for this message, or the notes made of it."""
    blocks = blocks_of(document)
    reading = document.reading
    if reading is None or reading.mode == "whole":
        return marked(document, blocks)
    if reading.mode == "all":
        return reading.notes
    return marked(document, [block for first, end in reading.blocks for block in blocks[first:end]])


def example_mark(document: Attachment) -> str:
    """A mark that a citation of this document may look like; empty where it has none."""
    if document.kind == "pages":
        return mark_of(3, "pages")
    return mark_of(12, document.kind) if len(blocks_of(document)) > 1 else ""


def fenced(document: Attachment) -> str:
    """It between fences that nothing in it can close, under the document's name."""
    label = _LABELS[document.reading.mode] if document.reading else ""
    return fence(f"File {document.name}{label}:", shown_text(document))


def fence(title: str, text: str) -> str:
    """A text between fences that nothing in it can close, under its title."""
    body = text.rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`{3,}", body)), default=2)
    marks = "`" * (longest + 1)
    return f"{title}\n{marks}\n{body}\n{marks}"
