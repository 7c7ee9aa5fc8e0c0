"""Teaches Textual's terminal parser what it gets wrong: Alt with Enter or a letter, and controls in pasted text."""

from collections.abc import Iterable
from typing import Any, cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.events import Key
from textual.keys import Keys
from textual.message import Message

from app.sanitize import StreamCleaner

ALT_ENTER_SEQUENCES = ("\x1b\r", "\x1b\n")
"""Escape before Enter. Textual 8.2 waits for more and then reports a plain Enter, which would send the message."""
PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"


def teach_terminal() -> None:
    """From now on Alt+Enter arrives as Ctrl+J, which starts a new line, and a paste presses no keys."""
    table = cast(dict[str, Any], ANSI_SEQUENCES_KEYS)
    for sequence in ALT_ENTER_SEQUENCES:
        table[sequence] = (Keys.ControlJ,)
    linux_driver.XTermParser = PasteSafeParser  # type: ignore[misc]


class PasteSafeParser(XTermParser):
    """Textual 8.2 reads an escape inside a paste as the start of a key: pasted text could press Ctrl+Q."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._pastes = PasteCleaner()

    def feed(self, data: str) -> Iterable[Message]:
        cleaned = self._pastes.push(data)
        # Nothing at all means the end of the input to the parser.
        return map(_without_character, super().feed(cleaned)) if cleaned or not data else ()

    def tick(self) -> Iterable[Message]:
        return map(_without_character, super().tick())


def _without_character(message: Message) -> Message:
    """Textual 8.2 gives a letter with Alt its character, which a text field would write and no action would get."""
    if isinstance(message, Key) and message.key.startswith("alt+") and message.character is not None:
        return Key(message.key, None)
    return message


class PasteCleaner:
    """Cleans what stands between the marks of a paste and passes on the rest; the marks may come in pieces."""

    def __init__(self) -> None:
        self._is_pasting = False
        self._rest = ""
        """Inside a paste: held back, it may be the beginning of the end mark. Outside: passed on already."""
        self._cleaner = StreamCleaner()

    def push(self, data: str) -> str:
        """What the parser may see of it."""
        passed_on: list[str] = []
        while data:
            data = self._push_pasted(data, passed_on) if self._is_pasting else self._push_typed(data, passed_on)
        return "".join(passed_on)

    def _push_typed(self, data: str, passed_on: list[str]) -> str:
        known = self._rest
        before, mark, after = (known + data).partition(PASTE_START)
        if not mark:
            passed_on.append(data)
            self._rest = _beginning_at_end(known + data, PASTE_START)
            return ""
        passed_on.append((before + mark)[len(known) :])
        self._is_pasting, self._rest, self._cleaner = True, "", StreamCleaner()
        return after

    def _push_pasted(self, data: str, passed_on: list[str]) -> str:
        before, mark, after = (self._rest + data).partition(PASTE_END)
        self._rest = "" if mark else _beginning_at_end(before, PASTE_END)
        self._is_pasting = not mark
        passed_on.append(self._cleaner.push(before.removesuffix(self._rest)) + mark)
        return after


def _beginning_at_end(text: str, mark: str) -> str:
    """The longest beginning of the mark that the text ends with."""
    return next((mark[:size] for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), "")
