"""Teaches Textual's terminal parser the ways in which terminals send Alt+Enter."""

from typing import Any, cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.keys import Keys

ALT_ENTER_SEQUENCES = ("\x1b\r", "\x1b\n")
"""Escape before Enter. Textual 8.2 waits for more and then reports a plain Enter, which would send the message."""


def teach_alt_enter() -> None:
    """From now on Alt+Enter arrives as Ctrl+J, which starts a new line."""
    table = cast(dict[str, Any], ANSI_SEQUENCES_KEYS)
    for sequence in ALT_ENTER_SEQUENCES:
        table[sequence] = (Keys.ControlJ,)
