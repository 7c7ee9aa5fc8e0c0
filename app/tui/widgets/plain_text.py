"""Text shown as it is, wrapped, drawn row by row: a megabyte costs no more than the rows on screen.

Never parses markup. Appending re-wraps the last line only. The text must have passed `app.sanitize`.
"""

from bisect import bisect_right

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from app.tui.wrapping import wrap_line

_TAB_WIDTH = 4


class PlainText(Widget):
    """A block of unparsed text that can grow at its end; `max_rows` shows only the first rows of it."""

    DEFAULT_CSS = """
    PlainText {
        height: auto;
        width: 1fr;
    }
    """

    def __init__(self, text: str = "", *, max_rows: int | None = None, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._pieces: list[str] = [text]
        self._lines = _display_lines(text)
        self._max_rows = max_rows
        self._wrap_width = 0
        self._rows: list[list[tuple[int, int]]] = []
        """Rows of each line."""
        self._first_rows: list[int] = []
        """Number of rows above each line."""
        self._strips: dict[int, Strip] = {}
        """Drawn rows; good for one width and one style."""
        self._strip_style = Style()

    @property
    def text(self) -> str:
        """Exactly what was given."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def num_rows(self) -> int:
        """All rows at the present width, the hidden ones too."""
        return self._first_rows[-1] + len(self._rows[-1]) if self._rows else 0

    @property
    def is_cut(self) -> bool:
        """Whether `max_rows` hides something."""
        return self._max_rows is not None and self.num_rows > self._max_rows

    def row_of_line(self, line: int) -> int:
        """The first row of a line (from 0) at the present width; the last one where there are fewer lines."""
        return self._first_rows[min(line, len(self._first_rows) - 1)] if self._first_rows else 0

    def show_all(self) -> None:
        """Lift the limit on rows."""
        self._max_rows = None
        self.refresh(layout=True)

    def append(self, text: str) -> None:
        """Add text at the end."""
        self._pieces.append(text)
        num_rows, last_row = self.num_rows, self._first_rows[-1] if self._first_rows else 0
        first, *more = _display_lines(text)
        self._lines[-1] += first
        self._lines.extend(more)
        if self._wrap_width:
            changed = len(self._lines) - len(more) - 1
            del self._rows[changed:], self._first_rows[changed:]
            self._wrap_from(changed)
            for row in range(last_row, num_rows):
                self._strips.pop(row, None)
        if self.num_rows != num_rows or not self._wrap_width:
            self.refresh(layout=True)
        else:
            top = self.gutter.top + last_row
            self.refresh(Region(0, top, self.size.width + self.gutter.width, num_rows - last_row))

    # ---- layout and drawing

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._wrap(width)
        return self.num_rows if self._max_rows is None else min(self.num_rows, self._max_rows)

    def render_lines(self, crop: Region) -> list[Strip]:
        # Working the style out walks the tree: once per drawing, not once per row.
        style = self.rich_style
        if style != self._strip_style:
            self._strip_style = style
            self._strips.clear()
        self._wrap(self.content_size.width)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._draw_row(y)
        return strip

    def _draw_row(self, y: int) -> Strip:
        width = self.content_size.width
        if not self._rows or y >= self.num_rows:
            return Strip.blank(width, self._strip_style)
        line_index = bisect_right(self._first_rows, y) - 1
        start, end = self._rows[line_index][y - self._first_rows[line_index]]
        segments = self._segments(line_index, start, end)
        return Strip(segments).apply_offsets(start, line_index).adjust_cell_length(width, self._strip_style)

    def _segments(self, line_index: int, start: int, end: int) -> list[Segment]:
        style = self._strip_style
        row = self._lines[line_index][start:end]
        selection = self.text_selection
        span = selection.get_span(line_index) if selection is not None else None
        if span is None:
            return [Segment(row, style)]
        low = min(max(span[0] - start, 0), len(row))
        high = len(row) if span[1] == -1 else min(max(span[1] - start, 0), len(row))
        marked = style + self.screen.get_component_rich_style("screen--selection")
        parts = [(row[:low], style), (row[low:high], marked), (row[high:], style)]
        return [Segment(text, part_style) for text, part_style in parts if text]

    def _wrap(self, width: int) -> None:
        if width != self._wrap_width and width > 0:
            self._wrap_width = width
            self._rows, self._first_rows = [], []
            self._strips.clear()
            self._wrap_from(0)

    def _wrap_from(self, line_index: int) -> None:
        above = self.num_rows
        for line in self._lines[line_index:]:
            rows = wrap_line(line, self._wrap_width)
            self._rows.append(rows)
            self._first_rows.append(above)
            above += len(rows)

    # ---- mouse selection

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(self._lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()


def _display_lines(text: str) -> list[str]:
    """Lines as drawn: tabs as spaces, and the separators that only some line splitters know as spaces."""
    return text.replace("\u2028", " ").replace("\u2029", " ").replace("\t", " " * _TAB_WIDTH).split("\n")
