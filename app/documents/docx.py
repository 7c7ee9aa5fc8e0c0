"""DOCX to text: streams the one XML part with the words, so that no size of it is ever held. Resolves no entity.

Pages are those that Word noted when it saved the file, or the author's own page breaks; without them the document is
lines, one a paragraph. Deleted text and field codes are left out, foot- and endnotes come last.
"""

import io
import zipfile
import zlib
from collections.abc import Iterator
from xml.parsers import expat

from app.documents.limits import MAX_UNPACKED_BYTES
from app.documents.parsing import Parsed, ReadingError, TextCollector

_MAIN = "word/document.xml"
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_CHUNK_BYTES = 2**16
_MAX_PLAUSIBLE_PAGE_CHARS = 6000
"""Pages by the author's breaks alone are believed up to this length: a longer one was parted by the layout."""


def parse_docx(data: bytes) -> Parsed:
    """Raises ReadingError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _parse(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, expat.ExpatError):
        raise ReadingError("damaged") from None


def _parse(archive: zipfile.ZipFile) -> Parsed:
    names = set(archive.namelist())
    if _MAIN not in names:
        raise ReadingError("not a document")
    reader = _WordReader(TextCollector())
    reader.read(_chunks(archive, _MAIN))
    pages = reader.take_pages()
    is_paged = len(pages) > 1 and (reader.has_layout or max(map(len, pages)) <= _MAX_PLAUSIBLE_PAGE_CHARS)
    for name in filter(names.__contains__, _NOTES):
        reader.read(_chunks(archive, name))
        notes = "\n".join(reader.take_pages()).strip("\n")
        if notes:
            pages[-1] += "\n\n" + notes
    return Parsed("pages", "\f".join(pages)) if is_paged else Parsed("text", "\n".join(pages))


def _chunks(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    if archive.getinfo(name).flag_bits & 1:
        raise ReadingError("encrypted")
    num_bytes = 0
    with archive.open(name) as part:
        while chunk := part.read(_CHUNK_BYTES):
            num_bytes += len(chunk)
            if num_bytes > MAX_UNPACKED_BYTES:
                raise ReadingError("unpacks")
            yield chunk


class _WordReader:
    """Follows the elements of one part after another. `has_layout`: Word noted where pages ended."""

    def __init__(self, collector: TextCollector) -> None:
        self.has_layout = False
        self._collector = collector
        self._pages: list[str] = []
        self._takes_text = False
        self._num_skipped = 0
        """Open elements that are another rendering of text already taken."""
        self._cell_depth = 0
        self._is_page_blank = True

    def read(self, chunks: Iterator[bytes]) -> None:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartDoctypeDeclHandler = _refuse_declaration
        parser.StartElementHandler = self._open
        parser.EndElementHandler = self._close
        parser.CharacterDataHandler = self._take
        for chunk in chunks:
            parser.Parse(chunk)
        parser.Parse(b"", True)

    def take_pages(self) -> list[str]:
        """The pages read since the last call, at least one."""
        self._end_page()
        pages, self._pages = self._pages, []
        return pages

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        element = name.rpartition(" ")[2]
        if self._num_skipped or element == "Fallback":
            self._num_skipped += 1
        elif element == "t":
            self._takes_text = True
        elif element == "tab":
            self._add("\t")
        elif element == "lastRenderedPageBreak" or (element == "br" and _value(attributes, "type") == "page"):
            self.has_layout |= element != "br"
            self._break_page()
        elif element in ("br", "cr"):
            self._add("\n")
        elif element == "numPr":
            self._add("- ")
        elif element == "pStyle" and _value(attributes, "val").lower().startswith(("heading", "title")):
            self._add("# ")
        elif element == "pageBreakBefore" and _value(attributes, "val") not in ("0", "false"):
            self._break_page()
        elif element == "tc":
            self._cell_depth += 1

    def _close(self, name: str) -> None:
        element = name.rpartition(" ")[2]
        if self._num_skipped:
            self._num_skipped -= 1
        elif element == "t":
            self._takes_text = False
        elif element == "p":
            self._add(" " if self._cell_depth else "\n")
        elif element == "tc":
            self._cell_depth -= 1
            self._add("| ")
        elif element == "tr":
            self._add("\n")

    def _take(self, text: str) -> None:
        if self._takes_text and not self._num_skipped:
            self._is_page_blank &= not text.strip()
            self._add(text.replace("\f", " "))

    def _add(self, text: str) -> None:
        self._collector.add(text)

    def _break_page(self) -> None:
        """A break of the author is followed by Word's note of the same: only the first counts."""
        if not self._is_page_blank:
            self._end_page()

    def _end_page(self) -> None:
        lines = (line.strip().removesuffix("|").rstrip() for line in self._collector.take().split("\n"))
        self._pages.append("\n".join(lines).strip("\n"))
        self._is_page_blank = True


def _refuse_declaration(*_: object) -> None:
    raise ReadingError("declarations")


def _value(attributes: dict[str, str], name: str) -> str:
    """An attribute of whatever namespace."""
    return next((value for key, value in attributes.items() if key.rpartition(" ")[2] == name), "")
