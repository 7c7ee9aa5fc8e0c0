"""What a parser gives or raises, and the text it collects under a limit."""

from dataclasses import dataclass

from app.documents.limits import MAX_EXTRACTED_CHARS
from app.messages import DocumentKind


class ReadingError(Exception):
    """A file can't be read; `name` is a key of the app's table of sentences."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Parsed:
    """Pages are parted by a form feed where the kind is pages. Page numbers begin with 1."""

    kind: DocumentKind
    text: str
    pages_without_text: tuple[int, ...] = ()


class TextCollector:
    """Pieces of text up to the limit of one document."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._num_chars = 0

    def add(self, piece: str) -> None:
        """Raises ReadingError when it becomes too much."""
        self._num_chars += len(piece)
        if self._num_chars > MAX_EXTRACTED_CHARS:
            raise ReadingError("too much text")
        self._pieces.append(piece)

    def take(self) -> str:
        """All of it; counting goes on."""
        text = "".join(self._pieces)
        self._pieces.clear()
        return text
