"""The text of a file that is open, up to a limit. What is no text is refused, what is too long is cut visibly."""

import os

from app.tools.registry import ToolError

MAX_BYTES = 1 << 20


def read_bytes(descriptor: int, limit: int = MAX_BYTES) -> bytes:
    """At most `limit` bytes, also of a file that has no end."""
    pieces: list[bytes] = []
    left = limit
    while left and (piece := os.read(descriptor, min(left, 1 << 18))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def decode(data: bytes, shown: str, is_cut: bool = False) -> str:
    """UTF-8, marked UTF-16, else Latin-1. Raises ToolError for what is no text."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        raise ToolError(f"{shown} is not a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The cut may have gone through a character.
        if is_cut and error.start > len(data) - 4:
            return data[: error.start].decode("utf-8-sig")
    if len(data.translate(None, bytes(range(9)) + bytes(range(14, 27)))) < 0.99 * len(data):
        raise ToolError(f"{shown} is not a text file")
    return data.decode("cp1252", errors="replace")


def read_text(descriptor: int, shown: str) -> str:
    """The file's text; where it is longer than MAX_BYTES its last line says so. Raises ToolError."""
    size = os.fstat(descriptor).st_size
    data = read_bytes(descriptor)
    is_cut = size > len(data)
    text = decode(data, shown, is_cut)
    return f"{text}\n[cut: the first {len(data)} of {size} bytes]" if is_cut else text
