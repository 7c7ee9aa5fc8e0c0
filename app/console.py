"""The plain terminal of the command line: answers to stdout; reasoning, progress and notices to stderr.

Writes no control sequence but its own, and those only to a terminal. Text from elsewhere is cleaned before it comes.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from app.errors import OutputError
from app.sanitize import clean_line

_DIM, _PLAIN, _CLEAR_LINE = "\x1b[2m", "\x1b[0m", "\r\x1b[K"


class Console:
    """Both streams of one command.

    Raises BrokenPipeError when the reader of a stream has gone, OutputError when it can't take any more.
    """

    def __init__(self, is_colour_off: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        # Both are None where a shell closed them.
        self._out = out or sys.stdout or _nowhere()
        self._err = err or sys.stderr or _nowhere()
        self._is_live = self._err.isatty()
        self._is_dimming = self._is_live and not is_colour_off
        self._has_progress = False
        self._open_stream: TextIO | None = None
        for stream in (self._out, self._err):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")

    @property
    def is_live(self) -> bool:
        """Whether stderr is a terminal, where a line of progress can be rewritten."""
        return self._is_live

    def answer(self, text: str) -> None:
        """A piece of the answer, shown at once."""
        self._switch_to(self._out)
        self._write(self._out, text)

    def reasoning(self, text: str) -> None:
        """A piece of the reasoning, dimmed on a terminal."""
        self._switch_to(self._err)
        self._write(self._err, f"{_DIM}{text}{_PLAIN}" if self._is_dimming else text)

    def progress(self, text: str) -> None:
        """One line that the next one replaces; only a terminal sees it."""
        if self._is_live and self._open_stream is None:
            self._write(self._err, f"{_CLEAR_LINE}{clean_line(text)}")
            self._has_progress = True

    def notice(self, text: str) -> None:
        """One line beside the answer."""
        self.end_line()
        self._write(self._err, f"hotslot: {clean_line(text)}\n")

    def remark(self, text: str) -> None:
        """One line beside the answer, such as progress where no line is ever rewritten."""
        self.end_line()
        self._write(self._err, f"{clean_line(text)}\n")

    def print(self, text: str) -> None:
        """A whole result."""
        self.end_line()
        self._write(self._out, text + "\n")

    def print_json(self, value: Any) -> None:
        """One object on one line; everything outside ASCII is escaped, so no control can pass."""
        self.print(json.dumps(value, allow_nan=False))

    def print_table(self, rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """Rows in aligned columns; `right` are the columns of numbers."""
        cells = [[clean_line(cell) for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        for row in cells:
            aligned = [
                cell.rjust(width) if i in right else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self.print("  ".join(aligned).rstrip())

    def end_line(self) -> None:
        """Finish a line that streaming or progress left open."""
        self._clear_progress()
        if self._open_stream is not None:
            stream, self._open_stream = self._open_stream, None
            self._write(stream, "\n")

    def _switch_to(self, stream: TextIO) -> None:
        self._clear_progress()
        if self._open_stream not in (None, stream):
            self.end_line()

    def _clear_progress(self) -> None:
        if self._has_progress:
            self._has_progress = False
            self._write(self._err, _CLEAR_LINE)

    def _write(self, stream: TextIO, text: str) -> None:
        if not text:
            return
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"The output can't be written: {error.strerror}; send it elsewhere.") from error
        if not text.startswith(_CLEAR_LINE):
            self._open_stream = None if text.removesuffix(_PLAIN).endswith("\n") else stream


def silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush has nothing left to complain about."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def format_bytes(num_bytes: int) -> str:
    """1536 -> '1.5 KiB'."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
