"""The visible text of one answer: a column of blocks, each updated alone while it is open.

Takes what `BlockScanner` says and nothing else; a stored answer goes through the same door in one piece.
"""

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual import events
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Markdown

from app.tui.stream_blocks import BlockClosed, BlockGrew, BlockOp, BlockOpened, BlockScanner
from app.tui.widgets.code_block import CodeBlock
from app.tui.widgets.plain_text import PlainText

LARGEST_TABLE_CHARS = 4000
"""Every cell of a Markdown table is a widget; a larger one stays text."""


def _keep_line_breaks(state: StateCore) -> None:
    """Models mean their line breaks (poems, addresses): show them."""
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


def _make_parser() -> MarkdownIt:
    """GitHub-like Markdown in which HTML stays visible as text."""
    parser = MarkdownIt("gfm-like", {"html": False, "linkify": False})
    parser.disable("linkify")
    parser.core.ruler.push("keep_line_breaks", _keep_line_breaks)
    return parser


_PARSER = _make_parser()


class Prose(Markdown):
    """One block of Markdown that is not code."""

    def __init__(self, text: str, *, classes: str | None = None) -> None:
        super().__init__(parser_factory=lambda: _PARSER, open_links=False, classes=classes)
        self._first_text = text

    async def on_mount(self, event: events.Mount) -> None:
        # The base class would `update`, which leaves a block of several lines unable to `append`.
        event.prevent_default()
        await self.append(self._first_text)


class AnswerBody(Vertical):
    """Blocks of one answer. `source` is the text they were made of, unchanged."""

    def __init__(self, text: str = "") -> None:
        self._scanner = BlockScanner()
        self._pieces: list[str] = []
        self._block: Prose | CodeBlock | PlainText | None = None
        super().__init__()
        self._initial = text

    @property
    def source(self) -> str:
        return "".join(self._pieces)

    async def on_mount(self) -> None:
        if self._initial:
            await self.push(self._initial)
            await self.finish()

    async def push(self, text: str) -> None:
        """Show a further piece."""
        self._pieces.append(text)
        await self._apply(self._scanner.push(text))

    async def finish(self) -> None:
        """Close what is open."""
        await self._apply(self._scanner.finish())

    async def _apply(self, ops: list[BlockOp]) -> None:
        new: list[Widget] = []
        index = 0
        while index < len(ops):
            op = ops[index]
            if isinstance(op, BlockOpened):
                text, num_used, closed = _what_follows(ops, index + 1)
                index += num_used
                new.append(self._open(op, text))
                if closed is not None:
                    new[-1] = self._close_new(new[-1], closed)
            elif isinstance(op, BlockGrew):
                await self._grow(op.text)
            else:
                await self._close(op)
            index += 1
        if new:
            new[0].set_class(not self.children, "first-block")
            await self.mount_all(new)

    def _open(self, op: BlockOpened, text: str) -> Widget:
        if op.kind == "code":
            self._block = CodeBlock(op.info, text)
        elif op.kind == "prose":
            self._block = Prose(text, classes="next-item" if op.is_next_item else None)
        else:
            self._block = PlainText(text, classes=op.kind)
        return self._block

    def _close_new(self, block: Widget, closed: BlockClosed) -> Widget:
        """A block that opened and closed in the same piece never needs its growing form."""
        self._block = None
        if isinstance(block, CodeBlock):
            block.call_after_refresh(block.close)
        if isinstance(block, PlainText) and _is_shown_as_markdown(block, closed):
            return Prose(block.text)
        return block

    async def _grow(self, text: str) -> None:
        if isinstance(self._block, Prose):
            await self._block.append(text)
        elif self._block is not None:
            self._block.append(text)

    async def _close(self, op: BlockClosed) -> None:
        block, self._block = self._block, None
        if isinstance(block, CodeBlock):
            block.close()
        elif isinstance(block, PlainText) and _is_shown_as_markdown(block, op):
            with self.app.batch_update():
                await self.mount(Prose(block.text), after=block)
                await block.remove()


def _what_follows(ops: list[BlockOp], index: int) -> tuple[str, int, BlockClosed | None]:
    """Text that a just opened block gets at once, operations it took, and its end if that came too."""
    text, num_used = "", 0
    for op in ops[index:]:
        if isinstance(op, BlockOpened):
            break
        num_used += 1
        if isinstance(op, BlockClosed):
            return text, num_used, op
        text += op.text
    return text, num_used, None


def _is_shown_as_markdown(block: PlainText, closed: BlockClosed) -> bool:
    """Tables and what only looked like one; not text that outgrew Markdown."""
    if not block.has_class("table"):
        return False
    return not closed.is_table or len(block.text) <= LARGEST_TABLE_CHARS
