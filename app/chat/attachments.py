"""Reading files that go with a message: finds form and encoding, refuses what can't be read, cleans name and text."""

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from app.documents.extract import Form, extract
from app.documents.limits import MAX_LINES, MAX_PACKED_FILE_BYTES, MAX_TEXT_FILE_BYTES
from app.errors import AttachmentError
from app.messages import Attachment, DocumentKind
from app.sanitize import clean, clean_line

MAX_FILE_BYTES = MAX_TEXT_FILE_BYTES
_BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_PDF, _ZIP, _OLE = b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_KNOWN_BINARY = {
    _PDF: "a PDF",
    _ZIP: "an archive or office document",
    b"\x7fELF": "a program",
    _OLE: "a document of old Word or Excel, or one with a password",
    b"{\\rtf": "an RTF document",
}
_HTML_SUFFIXES = {".html", ".htm", ".xhtml"}
_HTML_START = re.compile(rb"\s*(<!doctype html|<html)\b", re.IGNORECASE)
_HTML_CHARSET = re.compile(
    rb"<meta[^>]{0,200}charset\s*=\s*[\"']?"
    rb"(iso-8859-\d{1,2}|windows-\d{3,4}|koi8-[ru]|shift_jis|euc-jp|euc-kr|gbk|gb2312|gb18030|big5)\b",
    re.IGNORECASE,
)
"""Python knows other codecs too, some of which never end."""
_CODE_ENDINGS = (
    ".asm .bash .bat .c .cc .cfg .clj .cmake .conf .cpp .cs .css .csv .cu .cuh .dart .diff .ex .exs .fish .go .gradle"
    " .h .hpp .hs .ini .java .jinja .js .json .jsonl .jsx .kt .log .lua .m .ml .patch .php .pl .proto .ps1 .py .pyi .r"
    " .rb .rs .scala .scss .sh .sql .svelte .swift .tcl .tcss .tex .toml .ts .tsv .tsx .v .vim .vue .xml .yaml .yml"
    " .zig"
)
_CODE_SUFFIXES = frozenset(_CODE_ENDINGS.split())
_CODE_NAMES = {"Makefile", "Dockerfile", "CMakeLists.txt"}
_CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b")) + b"\x7f"
_MAX_CONTROL_SHARE = 0.3
"""Of valid UTF-8: text with stray NUL or control bytes is still text."""
_MAX_LATIN1_CONTROL_SHARE = 0.005
_SNIFFED_BYTES = 1024


def read_attachment(path: Path, *, may_be_pipe: bool = True) -> tuple[Attachment, str | None]:
    """The file as a document and, where the user should know how it was read, one line that says so.

    Takes seconds for a large PDF. Reading a pipe waits for whoever writes to it, for as long as that takes. Raises
    AttachmentError.
    """
    name = clean_line(str(path))
    return read_document(read_file(path, name, may_be_pipe=may_be_pipe), name, clean_line(path.name) or name)


def told_twice(attachment: Attachment, others: Sequence[Attachment]) -> str | None:
    """One line where the same document is among the others already: it is sent once."""
    if not any((other.name, other.text) == (attachment.name, attachment.text) for other in others):
        return None
    return f"{attachment.name} is attached already; it is sent once."


def read_pipe(descriptor: int, name: str) -> bytes:
    """All bytes of it, no more than a document may have. Raises AttachmentError."""
    try:
        return _read_pipe(descriptor, name)
    except OSError as error:
        reason = clean_line(error.strerror or str(error))
        raise AttachmentError(f"{name} can't be read: {reason}; name a file.") from error


def read_file(path: Path, name: str, *, may_be_pipe: bool = True) -> bytes:
    """All bytes of a file or pipe, no more than a document may have. Raises AttachmentError."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise AttachmentError(f"{name} is a folder; name the files in it.")
        is_pipe = stat.S_ISFIFO(mode) and may_be_pipe
        if not (stat.S_ISREG(mode) or is_pipe):
            raise AttachmentError(f"{name} is not a regular file; copy what it gives into one.")
        # Without O_NONBLOCK, a file that is swapped for a pipe just now would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if is_pipe else os.O_NONBLOCK))
        with open(descriptor, "rb", buffering=0) as file:
            return _read_pipe(descriptor, name) if is_pipe else _read_regular(file.fileno(), name)
    except FileNotFoundError:
        raise AttachmentError(f"There is no file {name}; check the path.") from None
    except PermissionError:
        raise AttachmentError(f"{name} can't be read: permission denied; change its permissions.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AttachmentError(f"{name} can't be read: {clean_line(reason)}; check the path.") from error


def read_document(data: bytes, name: str, short_name: str) -> tuple[Attachment, str | None]:
    """The same for bytes; errors and notices call them `name`, the document is called `short_name`."""
    packed = _packed_form(data, short_name)
    if packed is not None:
        return _extracted(data, packed, name, short_name)
    if Path(short_name).suffix.lower() in _HTML_SUFFIXES or _HTML_START.match(data[:_SNIFFED_BYTES]):
        text, notice = _decode_html(data, name)
        attachment, _ = _extracted(text.encode("utf-8", errors="replace"), "html", name, short_name)
        return attachment, notice
    text, notice = decode_text(data, name)
    text = clean(text)
    if not text.strip():
        raise AttachmentError(f"{name} has no text in it; there is nothing to read.")
    return Attachment(short_name, _limit_lines(text, name), _kind_of(short_name)), notice


def path_of(written: str) -> Path:
    """A path as people and file managers write it: in quotes, escaped, as a file:// address, from their home folder."""
    written = written.strip()
    if len(written) > 1 and written[0] == written[-1] and written[0] in "'\"":
        written = written[1:-1]
    elif written.startswith("file://"):
        written = unquote(urlsplit(written).path)
    elif "\\" in written and not os.path.exists(written):
        written = re.sub(r"\\(.)", r"\1", written)
    return Path(os.path.expanduser(written))


def pasted_path(text: str) -> Path | None:
    """The file that a pasted text names and nothing else, if there is one: what dragging a file to a terminal gives."""
    if not text.strip() or len(text) > 4096 or "\n" in text.strip():
        return None
    try:
        path = path_of(text)
        return path if path.is_absolute() and path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        # Too long, a NUL in it, no home to expand: a text like any other.
        return None


def _packed_form(data: bytes, name: str) -> Form | None:
    """By the first bytes; a PDF by its name may have others before them."""
    is_named_pdf = name.lower().endswith(".pdf")
    if data.startswith(_PDF) or (is_named_pdf and _PDF in data[:_SNIFFED_BYTES]):
        return "pdf"
    return "docx" if data.startswith(_ZIP) else None


def _extracted(data: bytes, form: Form, name: str, short_name: str) -> tuple[Attachment, str | None]:
    extracted = extract(data, form, name)
    text = _limit_lines(extracted.text, name)
    return Attachment(short_name, text, extracted.kind), " ".join(extracted.notices) or None


def _kind_of(short_name: str) -> DocumentKind:
    is_code = short_name in _CODE_NAMES or Path(short_name).suffix.lower() in _CODE_SUFFIXES
    return "code" if is_code else "text"


def _limit_lines(text: str, name: str) -> str:
    if text.count("\n") > MAX_LINES:
        raise AttachmentError(f"{name} has more than {MAX_LINES:,} lines; attach the part that matters.")
    return text


def _read_regular(descriptor: int, name: str) -> bytes:
    """A regular file, as it was at one time."""
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise AttachmentError(f"{name} is not a regular file; copy what it gives into one.")
    data = _read_pipe(descriptor, name)
    after = os.fstat(descriptor)
    is_sized = before.st_size > 0  # A file of the system, such as one in /proc, has no size and no fixed time.
    if is_sized and (len(data), after.st_size, after.st_mtime_ns) != (before.st_size,) * 2 + (before.st_mtime_ns,):
        raise AttachmentError(f"{name} changed while it was read; attach it again when it is complete.")
    return data


def _read_pipe(descriptor: int, name: str) -> bytes:
    """All that comes, up to what a file of its form may have."""
    data = bytearray()
    limit = MAX_FILE_BYTES
    while chunk := os.read(descriptor, 2**20):
        if not data and _packed_form(chunk, name):
            limit = MAX_PACKED_FILE_BYTES
        data += chunk
        if len(data) > limit:
            raise AttachmentError(f"{name} is larger than {limit // 2**20} MiB; attach the part that matters.")
    return bytes(data)


def _decode_html(data: bytes, name: str) -> tuple[str, str | None]:
    """By the encoding that the page itself declares, where it has one and it fits."""
    declared = _HTML_CHARSET.search(data[: 4 * _SNIFFED_BYTES])
    if declared and not data.startswith(tuple(mark for mark, _ in _BYTE_ORDER_MARKS)):
        # Declared wrongly, as happens: found out as for any text.
        with suppress(LookupError, UnicodeError):
            return data.decode(declared[1].decode("ascii")), None
    return decode_text(data, name)


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
