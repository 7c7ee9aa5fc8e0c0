"""A fence of the answer: plain while it grows, coloured once it is closed, with its language and a copy mark."""

import asyncio

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.tui.widgets.plain_text import PlainText

LONGEST_COLOURED_CHARS = 40_000
"""Colouring more than this costs more than it helps."""


class CodeHeader(Horizontal):
    """Language on the left, 'copy' on the right; a click copies."""

    class Clicked(Message):
        """The header was clicked."""

    def __init__(self, language: str) -> None:
        super().__init__(
            Static(Content(language or "code"), markup=False, classes="code-language"),
            Static(Content("copy"), markup=False, classes="code-copy"),
        )

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Clicked())


class CodeBlock(Vertical):
    """Code without its fence lines; `code` is what a copy gives."""

    DEFAULT_CSS = """
    CodeBlock {
        height: auto;
        background: $code-background;
        CodeHeader { height: 1; padding: 0 1; color: $text-muted; background: $code-header-background; }
        CodeHeader:hover { color: $text; }
        .code-language { width: 1fr; }
        .code-copy { width: auto; }
        PlainText, .code-body { padding: 0 1; height: auto; width: 1fr; color: $foreground; background: transparent; }
    }
    """

    class CopyAsked(Message):
        """The user wants this code in the clipboard."""

        def __init__(self, code: str) -> None:
            super().__init__()
            self.code = code

    def __init__(self, language: str, code: str = "") -> None:
        super().__init__()
        self.language = language
        self._body = PlainText(code)

    @property
    def code(self) -> str:
        """The code itself, without the newline that ends its last line."""
        return self._body.text.removesuffix("\n")

    def compose(self) -> ComposeResult:
        yield CodeHeader(self.language)
        yield self._body

    def append(self, text: str) -> None:
        self._body.append(text)

    def close(self) -> None:
        """The fence ended: colour it, off the event loop since the first use of a language loads its lexer."""
        if 0 < len(self.code) <= LONGEST_COLOURED_CHARS:
            self._colour()

    @work(exit_on_error=False)
    async def _colour(self) -> None:
        coloured = await asyncio.to_thread(_coloured, self.code, self.language)
        if self.is_attached:
            with self.app.batch_update():
                await self.mount(Static(coloured, markup=False, classes="code-body"))
                self._body.display = False

    def on_code_header_clicked(self, message: CodeHeader.Clicked) -> None:
        message.stop()
        self.post_message(self.CopyAsked(self.code))


def _coloured(code: str, language: str) -> Content:
    from textual.highlight import highlight  # loads pygments: only once there is code to colour

    return highlight(code, language=language or None)
