"""What a message shows the model of a document: the same characters every time, so that later turns reuse them."""

import re

from app.documents.blocks import blocks_of, marked
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


def fenced(document: Attachment) -> str:
    """It between fences that nothing in it can close, under the document's name."""
    body = shown_text(document).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`{3,}", body)), default=2)
    fence = "`" * (longest + 1)
    label = _LABELS[document.reading.mode] if document.reading else ""
    return f"File {document.name}{label}:\n{fence}\n{body}\n{fence}"
