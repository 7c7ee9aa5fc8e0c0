"""Cuts a growing Markdown answer into blocks whose cost of showing stays flat. Pure: knows no widget.

A prose block ends at a blank line, a heading or the next item of a list; a fence at its closing line; a table at the
first line that is no row. Prose that outgrows `LONG_BLOCK_CHARS` goes on as plain text. Refuses to look inside a block:
that is Markdown's job.
"""

import re
from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["prose", "code", "table", "plain"]

LONG_BLOCK_CHARS = 6000
"""Up to about this size, parsing a prose block again with every piece stays cheap."""

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<mark>`{3,}|~{3,})(?P<info>.*)$")
_LIST_ITEM = re.compile(r"^ ?([-*+]|\d{1,9}[.)])\s")
_HEADING = re.compile(r"^#{1,6}\s")
_ROW = re.compile(r"^\s*\|")
_TABLE_RULE = re.compile(r"^\s*\|(\s*:?-+:?\s*\|)*(\s*:?-+:?\s*)?$")
_UNDECIDED = re.compile(r"^\s*(`{0,2}|~{0,2}|`{3,}[^`]*|~{3,}.*|[-*+]|\d{1,9}[.)]?|#{1,6} *)$")
"""Starts of a line that may still become a fence, a list item or a heading."""


@dataclass(frozen=True)
class BlockOpened:
    """A new block begins; `info` is a fence's language. `is_next_item` tells an item that follows another."""

    kind: BlockKind
    info: str = ""
    is_next_item: bool = False


@dataclass(frozen=True)
class BlockGrew:
    """Source to add to the open block, line ends included. Of code: without the fence's lines and indent."""

    text: str


@dataclass(frozen=True)
class BlockClosed:
    """The open block is complete. `is_table` tells a table from lines that only looked like one."""

    is_table: bool = False


BlockOp = BlockOpened | BlockGrew | BlockClosed


@dataclass
class _OpenBlock:
    kind: BlockKind
    num_chars: int = 0
    is_list: bool = False
    is_heading: bool = False
    num_rows: int = 0
    is_table: bool = False
    fence_mark: str = ""
    fence_indent: int = 0

    def is_fence_end(self, line: str) -> bool:
        stripped = line.strip()
        return len(stripped) >= len(self.fence_mark) and not stripped.strip(self.fence_mark[0])


class BlockScanner:
    """Feed it pieces, which may end anywhere; it answers with what to do to the blocks."""

    def __init__(self) -> None:
        self._block: _OpenBlock | None = None
        self._line = ""
        """The last line, as far as it has come."""
        self._num_shown = 0
        """How many characters of it have been passed on."""
        self._after_blank = False
        self._last_was_item = False
        self._ops: list[BlockOp] = []

    def push(self, text: str) -> list[BlockOp]:
        """What a further piece of the answer does."""
        *ended, rest = text.split("\n")
        for piece in ended:
            self._line += piece
            self._end_line("\n")
        self._line += rest
        if self._line:
            self._show_unfinished_line()
        return self._take_ops()

    def finish(self) -> list[BlockOp]:
        """The answer ended: what was held back is passed on and the open block closes."""
        if self._line:
            self._end_line("")
        self._close()
        return self._take_ops()

    def _take_ops(self) -> list[BlockOp]:
        ops, self._ops = self._ops, []
        return ops

    # ---- lines

    def _end_line(self, newline: str) -> None:
        line, num_shown = self._line, self._num_shown
        self._line, self._num_shown = "", 0
        block = self._block
        if num_shown:
            self._grow(line[num_shown:] + newline)
        elif block is not None and block.kind == "code":
            if block.is_fence_end(line):
                self._close()
            else:
                self._grow(self._without_fence_indent(line) + newline)
        elif not line.strip():
            self._end_blank_line()
        elif (fence := _FENCE.match(line)) and not (fence["mark"][0] == "`" and "`" in fence["info"]):
            self._open_code(fence)
        else:
            self._place(line)
            self._grow(line + newline)
            self._count_row(line)

    def _end_blank_line(self) -> None:
        if self._block is not None and self._block.is_list:
            self._grow("\n")
        else:
            self._close()
        self._after_blank = True

    def _show_unfinished_line(self) -> None:
        line = self._line
        if self._num_shown == 0:
            if not self._is_decided(line):
                return
            if self._block is None or self._block.kind != "code":
                self._place(line)
                if self._block is not None and self._block.kind == "table":
                    return
            self._grow(self._without_fence_indent(line))
        else:
            self._grow(line[self._num_shown :])
        self._num_shown = len(line)

    def _is_decided(self, line: str) -> bool:
        """Whether no further character can change which block this line belongs to."""
        block = self._block
        if block is not None and block.kind == "code":
            start = line.lstrip()
            return bool(start) and start[0] != block.fence_mark[0]
        if block is not None and block.kind == "table" and block.num_rows == 1:
            return False
        return not _UNDECIDED.match(line)

    def _without_fence_indent(self, line: str) -> str:
        if self._block is None or self._block.kind != "code":
            return line
        indent = len(line) - len(line.lstrip(" "))
        return line[min(indent, self._block.fence_indent) :]

    # ---- blocks

    def _open_code(self, fence: re.Match[str]) -> None:
        self._close()
        info = fence["info"].split()
        self._open(_OpenBlock("code", fence_mark=fence["mark"], fence_indent=len(fence["indent"])), *info[:1])

    def _place(self, line: str) -> None:
        """Leaves the open block open if the line belongs to it, else opens the block that the line begins."""
        after_blank, self._after_blank = self._after_blank, False
        if self._block is not None and self._continues(self._block, line, after_blank):
            return
        self._close()
        is_row = _ROW.match(line) is not None
        block = _OpenBlock("table" if is_row else "prose")
        block.is_list = _LIST_ITEM.match(line) is not None
        block.is_heading = _HEADING.match(line) is not None
        self._open(block)

    @staticmethod
    def _continues(block: _OpenBlock, line: str, after_blank: bool) -> bool:
        if block.kind == "plain":
            return True
        if block.kind == "table":
            return _ROW.match(line) is not None and (block.num_rows != 1 or _TABLE_RULE.match(line) is not None)
        if block.is_heading or _HEADING.match(line) or _LIST_ITEM.match(line):
            return False
        if block.is_list:
            return not after_blank or line.startswith(" ")
        return not _ROW.match(line)

    def _count_row(self, line: str) -> None:
        block = self._block
        if block is not None and block.kind == "table":
            block.num_rows += 1
            block.is_table = block.is_table or (block.num_rows == 2 and _TABLE_RULE.match(line) is not None)

    def _open(self, block: _OpenBlock, info: str = "") -> None:
        self._block = block
        self._ops.append(BlockOpened(block.kind, info, block.is_list and self._last_was_item))
        self._last_was_item = block.is_list

    def _grow(self, text: str) -> None:
        if not text or self._block is None:
            return
        if self._block.kind == "prose" and self._block.num_chars + len(text) > LONG_BLOCK_CHARS:
            self._close()
            self._open(_OpenBlock("plain"))
        self._block.num_chars += len(text)
        if self._ops and isinstance(last := self._ops[-1], BlockGrew):
            self._ops[-1] = BlockGrew(last.text + text)
        else:
            self._ops.append(BlockGrew(text))

    def _close(self) -> None:
        if self._block is not None:
            self._ops.append(BlockClosed(self._block.is_table))
        self._block = None
