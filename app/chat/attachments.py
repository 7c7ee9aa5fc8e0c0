"""Reading text files that go with a message: finds the encoding, refuses what is not text, cleans name and content."""

import stat
from pathlib import Path

from app.errors import AttachmentError
from app.messages import Attachment
from app.sanitize import clean, clean_line

MAX_FILE_BYTES = 16 * 2**20
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_KNOWN_BINARY = {b"%PDF-": "a PDF", b"PK\x03\x04": "an archive or office document", b"\x7fELF": "a program"}
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b")) + b"\x7f"
_MAX_CONTROL_SHARE = 0.3
"""Of valid UTF-8: text with stray NUL or control bytes is still text."""
_MAX_LATIN1_CONTROL_SHARE = 0.005


def read_attachment(path: Path, *, may_be_pipe: bool = True) -> tuple[Attachment, str | None]:
    """The file as text and, where the encoding was a guess, one line that says so. Raises AttachmentError.

    Reading a pipe waits for whoever writes to it, for as long as that takes.
    """
    name = clean_line(str(path))
    text, notice = decode_text(_read(path, name, may_be_pipe), name)
    return Attachment(clean_line(path.name) or name, clean(text)), notice


def _read(path: Path, name: str, may_be_pipe: bool) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise AttachmentError(f"{name} is a folder; name the files in it.")
        if not (stat.S_ISREG(mode) or (may_be_pipe and stat.S_ISFIFO(mode))):
            raise AttachmentError(f"{name} is not a regular file; copy what it gives into one.")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise AttachmentError(f"There is no file {name}; check the path.") from None
    except PermissionError:
        raise AttachmentError(f"{name} can't be read: permission denied; change its permissions.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AttachmentError(f"{name} can't be read: {clean_line(reason)}; check the path.") from error
    if len(data) > MAX_FILE_BYTES:
        raise AttachmentError(f"{name} is larger than {MAX_FILE_BYTES // 2**20} MiB; attach the part that matters.")
    return data


def decode_text(data: bytes, name: str) -> tuple[str, str | None]:
    """The text of a file or pipe called `name`, and a notice where its encoding was a guess. Raises AttachmentError."""
    if not data:
        raise AttachmentError(f"{name} is empty; there is nothing to read.")
    for magic, kind in _KNOWN_BINARY.items():
        if data.startswith(magic):
            raise AttachmentError(f"{name} is {kind}, not text; save its text as a file and use that.")
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode_marked(data, encoding, name), None
    for encoding in _unmarked_utf16(data):
        return data.decode(encoding), f"{name} was read as {encoding.upper()}."
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        if b"\0" in data or _control_share(data) > _MAX_LATIN1_CONTROL_SHARE:
            raise _not_text(name) from None
        return data.decode("cp1252", errors="replace"), f"{name} is not UTF-8; it was read as Latin-1."
    if _control_share(data) > _MAX_CONTROL_SHARE:
        raise _not_text(name)
    return text, None


def _decode_marked(data: bytes, encoding: str, name: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise AttachmentError(f"{name} begins like {encoding.upper()} but is damaged; save it as UTF-8.") from None


def _unmarked_utf16(data: bytes) -> list[str]:
    """The byte order in which the data is mostly Latin text in UTF-16: every second byte is 0, the others are not."""
    if len(data) % 2 or len(data) < 4:
        return []
    half = len(data) // 2
    even_share, odd_share = data[::2].count(0) / half, data[1::2].count(0) / half
    candidates = [("utf-16-le", even_share, odd_share), ("utf-16-be", odd_share, even_share)]
    return [
        name
        for name, text_zeros, high_zeros in candidates
        if high_zeros > 0.7 and text_zeros < 0.05 and _decodes(data, name)
    ]


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return _control_share(text.encode("utf-8")) <= _MAX_CONTROL_SHARE


def _control_share(data: bytes) -> float:
    return 1 - len(data.translate(None, _CONTROL_BYTES)) / len(data)


def _not_text(name: str) -> AttachmentError:
    return AttachmentError(f"{name} is a binary file, not text; save its text as a file and use that.")
