"""Documents and prompts that a command is given, from files and stdin. A pipe waits for whoever writes to it, and so
the user hears what is waited for."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from app.chat.attachments import decode_text, read_attachment, read_document, read_pipe, told_twice
from app.console import Console
from app.errors import AttachmentError
from app.messages import Attachment

QUIET_S = 3.0
"""So long nothing is said."""


def read_files(names: Sequence[str], console: Console, *, may_be_stdin: bool) -> list[Attachment]:
    """Every document once; a `-` is stdin where it may be. Raises AttachmentError."""
    attachments: list[Attachment] = []
    for name in names:
        is_stdin = may_be_stdin and name == "-"
        attachment, notice = _read_stdin(console) if is_stdin else _read_file(name, console)
        twice = told_twice(attachment, attachments)
        if twice is None:
            attachments.append(attachment)
        for line in filter(None, (notice, twice)):
            console.notice(line)
    return attachments


def read_prompt(console: Console) -> str:
    """All of stdin; nothing where there is none. Raises AttachmentError."""
    if sys.stdin is None:
        return ""
    with _said_while_reading(console, "stdin"):
        data = read_pipe(sys.stdin.buffer.fileno(), "stdin")
    if not data:
        return ""
    text, notice = decode_text(data, "stdin")
    if notice:
        console.notice(notice)
    return text


def _read_file(name: str, console: Console) -> tuple[Attachment, str | None]:
    with _said_while_reading(console, name):
        return read_attachment(Path(name))


def _read_stdin(console: Console) -> tuple[Attachment, str | None]:
    if sys.stdin is None:
        raise AttachmentError("There is no stdin to read a document from; name a file.")
    with _said_while_reading(console, "stdin"):
        return read_document(read_pipe(sys.stdin.buffer.fileno(), "stdin"), "stdin", "stdin")


@contextmanager
def _said_while_reading(console: Console, name: str) -> Iterator[None]:
    """Says once, on stderr, what is still read after `QUIET_S`."""
    timer = Timer(QUIET_S, console.notice, [f"still reading {name}; Ctrl+C stops."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
