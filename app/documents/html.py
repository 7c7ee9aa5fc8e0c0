"""HTML to lines of text: what a reader of the page would read. Runs nothing, fetches nothing."""

import re
from html.parser import HTMLParser

from app.documents.parsing import Parsed, TextCollector

_UNREAD = {"script", "style", "noscript", "template", "svg", "iframe", "object"}
_LINE_TAGS = (
    "address article aside blockquote body br caption center dd details dialog div dl dt fieldset figcaption figure"
    " footer form h1 h2 h3 h4 h5 h6 header hr html li main nav ol option p pre section summary table tbody tfoot thead"
    " title tr ul"
)
_LINES = frozenset(_LINE_TAGS.split())
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}


def parse_html(data: bytes) -> Parsed:
    """`data` is UTF-8. Raises ReadingError."""
    reader = _PageReader()
    reader.feed(data.decode("utf-8"))
    reader.close()
    return Parsed("text", reader.text())


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._collector = TextCollector()
        self._unread: list[str] = []
        self._num_preformatted = 0

    def text(self) -> str:
        """Lines without blank ones at their ends; several blank lines are one."""
        lines = (line.rstrip().removeprefix(" | ") for line in self._collector.take().split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNREAD:
            self._unread.append(tag)
        elif tag in ("td", "th"):
            self._collector.add(" | ")
        elif tag in _LINES:
            self._collector.add("\n" + _HEADINGS.get(tag, "- " if tag == "li" else ""))
        self._num_preformatted += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _LINES:
            self._collector.add("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unread:
            del self._unread[self._unread.index(tag) :]
        elif tag in _LINES:
            self._collector.add("\n")
        self._num_preformatted -= tag == "pre" and self._num_preformatted > 0

    def handle_data(self, data: str) -> None:
        if not self._unread:
            self._collector.add(data if self._num_preformatted else re.sub(r"\s+", " ", data))
