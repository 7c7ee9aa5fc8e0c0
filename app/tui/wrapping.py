"""Breaks one line of text into rows of a width in cells. Pure, and quick on lines of a megabyte."""

from rich.cells import cell_len, get_character_cell_size

_JOINER = "\u200d"


def wrap_line(line: str, width: int) -> list[tuple[int, int]]:
    """Rows of `line` as (start, end) of its characters; at least one row. Breaks after spaces where it can."""
    if width < 1:
        return [(0, len(line))]
    if line.isascii():
        return _wrap_ascii(line, width)
    if len(line) * 2 <= width or (len(line) <= 4 * width and cell_len(line) <= width):
        return [(0, len(line))]
    return _wrap_cells(line, width)


def _wrap_ascii(line: str, width: int) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    start = 0
    while len(line) - start > width:
        space = line.rfind(" ", start, start + width + 1)
        end = space + 1 if space > start else start + width
        rows.append((start, end))
        start = end
    rows.append((start, len(line)))
    return rows


def _wrap_cells(line: str, width: int) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    start = last_space = cells = 0
    for index, character in enumerate(line):
        size = get_character_cell_size(character)
        is_joined = index > 0 and line[index - 1] == _JOINER
        if cells + size > width and size and not is_joined and index > start:
            end = last_space if last_space > start else index
            rows.append((start, end))
            start = end
            cells = cell_len(line[start:index])
        cells += size
        if character == " ":
            last_space = index + 1
    rows.append((start, len(line)))
    return rows
