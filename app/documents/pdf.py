"""PDF to pages of text with PDFium. Pictures are not read; pages that are nothing else are reported."""

import re

from app.documents.parsing import Parsed, ReadingError, TextCollector
from app.documents.wrapping import unwrap

_HYPHEN_AT_LINE_END = re.compile("\ufffe\r?\n?")
"""PDFium's mark for a word that was divided by the layout."""


def parse_pdf(data: bytes) -> Parsed:
    """Raises ReadingError."""
    # Optional: an extra of the app. Imported by the reader process only.
    try:
        import pypdfium2
    except ImportError:
        raise ReadingError("no reader") from None
    try:
        document = pypdfium2.PdfDocument(data)
        pages = _read_pages(document)
    except pypdfium2.PdfiumError as error:
        raise ReadingError("encrypted" if "password" in str(error).lower() else "damaged") from None
    without_text = tuple(number for number, page in enumerate(pages, 1) if not page.strip())
    if len(without_text) == len(pages):
        raise ReadingError("no text" if pages else "damaged")
    return Parsed("pages", "\f".join(pages), without_text)


def _read_pages(document: object) -> list[str]:
    collector = TextCollector()
    pages = []
    for page in document:  # type: ignore[attr-defined]
        text_page = page.get_textpage()
        text = _HYPHEN_AT_LINE_END.sub("", text_page.get_text_range()).replace("\r\n", "\n").replace("\f", "\n")
        collector.add(text)
        pages.append("\n".join(unwrap(collector.take().split("\n"))))
        text_page.close()
        page.close()
    return pages
