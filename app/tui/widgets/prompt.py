"""Where the user writes: several lines, history, slash commands. Says what was asked; sends nothing itself."""

import re
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from app.actions import ACTIONS, complete_slash
from app.chat.attachments import pasted_path
from app.sanitize import clean
from app.tui.bindings import passed_on

NEWLINE_KEYS = next(action for action in ACTIONS if action.name == "newline").keys
LONGEST_HISTORY = 200
LONGEST_SHOWN_CHARS = 10_000
LONGEST_SHOWN_LINES = 200
"""What is pasted beyond either stands in the prompt as a label: a text field would take seconds per key."""


class Prompt(TextArea):
    """Enter asks to send; Shift+Enter, Ctrl+J, Alt+Enter or a backslash before Enter make a new line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete", show=False),
        *passed_on(("pageup", "pagedown", "ctrl+y")),
    ]

    class Submitted(Message):
        """The user pressed Enter. The text is with the message: what is typed from then on is the next one's."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class FilePasted(Message):
        """The user pasted the path of a file and nothing else, or dropped the file on the terminal."""

        def __init__(self, path: Path) -> None:
            super().__init__()
            self.path = path

    def __init__(self) -> None:
        super().__init__(
            id="prompt",
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            highlight_cursor_line=False,
            placeholder="Write a message…  (/ for commands, F1 for help)",
        )
        self._history: list[str] = []
        self._history_index = 0
        """Entry shown; len(history) is the draft."""
        self._draft = ""
        self._pastes: dict[str, str] = {}
        """Long texts by the label that stands for them."""
        self.was_completing = False
        """Whether hints for a slash command are shown."""

    # ---- keys

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._enter()
        elif event.key.replace("\r", "enter") in NEWLINE_KEYS:  # xterm's modifyOtherKeys leaves the character
            event.stop()
            event.prevent_default()
            self.insert("\n")
        elif event.key == "up" and self.navigator.is_first_wrapped_line(self.cursor_location) and self._can_browse(-1):
            event.stop()
            event.prevent_default()
            self._browse(-1)
        elif event.key == "down" and self.navigator.is_last_wrapped_line(self.cursor_location) and self._can_browse(1):
            event.stop()
            event.prevent_default()
            self._browse(1)
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if (path := pasted_path(event.text)) is not None:
            self.post_message(self.FilePasted(path))
            return
        if result := self._replace_via_keyboard(self._collapsed(clean(event.text)), *self.selection):
            self.move_cursor(result.end_location)

    def _enter(self) -> None:
        row, column = self.cursor_location
        if column and self.document.get_line(row)[column - 1] == "\\" and self.selection.is_empty:
            self.replace("\n", (row, column - 1), (row, column))
        else:
            self.post_message(self.Submitted(self.take()))

    def action_complete(self) -> None:
        """Finish a slash command, or move on to the next widget."""
        matches = complete_slash(self.text)
        if matches:
            self.set_text("/" + matches[0].command + (" " if matches[0].argument else ""))
        else:
            self.screen.focus_next()

    # ---- text

    def set_text(self, text: str) -> None:
        """Replace everything and put the cursor at the end."""
        self.text = self._collapsed(text)
        self.selection = Selection.cursor(self.document.end)

    def take(self) -> str:
        """The text with its pastes, which goes into the history; the prompt is empty after it."""
        text = self.text
        self.remember(text)
        self.text = ""
        if not self._pastes:
            return text
        # In one pass: a paste may spell the label of another.
        return re.sub("|".join(map(re.escape, self._pastes)), lambda label: self._pastes[label[0]], text)

    def give_back(self, text: str) -> None:
        """What was submitted can't be obeyed now: it stands here again, unless something else does by now."""
        if not self.text:
            self.set_text(text)

    def _collapsed(self, text: str) -> str:
        num_lines = text.count("\n") + 1
        if len(text) <= LONGEST_SHOWN_CHARS and num_lines <= LONGEST_SHOWN_LINES:
            return text
        amount = f"{num_lines} lines" if num_lines > 1 else f"{len(text)} characters"
        label = f"⟦pasted text {len(self._pastes) + 1}: {amount}⟧"
        self._pastes[label] = text
        return label

    # ---- history

    def remember(self, text: str) -> None:
        """Add to the history, newest last; repeating the newest adds nothing."""
        if text.strip() and (not self._history or self._history[-1] != text):
            self._history = [*self._history, text][-LONGEST_HISTORY:]
        self._history_index = len(self._history)

    def _can_browse(self, step: int) -> bool:
        return 0 <= self._history_index + step <= len(self._history)

    def _browse(self, step: int) -> None:
        if self._history_index == len(self._history):
            self._draft = self.text
        self._history_index += step
        is_draft = self._history_index == len(self._history)
        self.set_text(self._draft if is_draft else self._history[self._history_index])
