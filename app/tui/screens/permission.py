"""May this tool run? Shows exactly what would happen. Its answer is the user's, and it owns no logic."""

import json
import time
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from app.chat.events import PermissionAnswer, PermissionAsked
from app.sanitize import clean
from app.tui.display import MUTED, shown
from app.tui.widgets.plain_text import PlainText

ARMING_S = 0.6
"""A letter typed sooner after the last key, or after the question came up, was meant for the prompt."""
RISK_WORDS = {
    "none": "It touches nothing of yours.",
    "read": "It reads files.",
    "write": "It writes a file.",
    "run": "It runs a program on this machine, as you.",
}
ANSWERS: dict[str, tuple[str, PermissionAnswer]] = {
    "deny": ("Deny (N)", PermissionAnswer(False)),
    "allow": ("Allow once (Y)", PermissionAnswer(True)),
    "folder": ("Always here (F)", PermissionAnswer(True, "folder")),
    "always": ("Always (A)", PermissionAnswer(True, "always")),
    "never": ("Never", PermissionAnswer(False, "always")),
}


LETTERS = {"n": "deny", "y": "allow", "f": "folder", "a": "always"}


class PermissionScreen(ModalScreen[PermissionAnswer | None]):
    """Esc and the button under the focus deny. None where the question was withdrawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "deny", "Deny", show=False),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
        Binding("up,pageup", "scroll(-1)", show=False),
        Binding("down,pagedown", "scroll(1)", show=False),
    ]

    def __init__(self, asked: PermissionAsked) -> None:
        super().__init__(classes="dialog permission")
        self.asked = asked
        self._armed_at = 0.0

    def compose(self) -> ComposeResult:
        asked = self.asked
        with Vertical(classes="box wide") as box:
            box.border_title = Content("Permission")
            yield Static(
                Content.assemble("May the model use ", shown(asked.call.name, "bold"), "?"),
                markup=False,
                classes="question",
            )
            yield Static(self._facts(), markup=False, classes="facts")
            with VerticalScroll(classes="exactly", can_focus=False):
                if asked.diff:
                    yield Static(diff_content(asked.diff.strip("\n") + "\n"), markup=False, classes="diff")
                yield PlainText(clean(_arguments_text(asked)))
            with Horizontal(classes="buttons"):
                for name in self._offered:
                    variant = "error" if name in ("deny", "never") else "primary"
                    yield Button(Content(ANSWERS[name][0]), id=name, compact=True, variant=variant)  # type: ignore[arg-type]

    @property
    def _offered(self) -> list[str]:
        scopes = self.asked.scopes
        return [name for name, (_, answer) in ANSWERS.items() if answer.scope in scopes]

    def _facts(self) -> Content:
        facts = Content(RISK_WORDS[self.asked.risk])
        if self.asked.permission != self.asked.call.name:
            facts += Content.assemble(
                "\nThis needs the permission ", shown(self.asked.permission, "$text-warning"), "."
            )
        if self.asked.folder:
            facts += Content.assemble(("\nFolder: ", MUTED), shown(self.asked.folder))
        if self.asked.note:
            facts += Content("\n") + shown(self.asked.note, "$text-warning")
        return facts

    def on_mount(self) -> None:
        self._armed_at = time.monotonic() + ARMING_S
        self.query_one("#deny", Button).focus()

    def on_key(self, event: events.Key) -> None:
        """Letters, and Enter on a button, count only when nobody was typing."""
        if not (event.is_printable or event.key == "enter"):
            return
        now = time.monotonic()
        is_armed, self._armed_at = now >= self._armed_at, max(self._armed_at, now + ARMING_S)
        name = LETTERS.get(event.key.lower(), "")
        if event.is_printable or not is_armed:
            event.stop()
            event.prevent_default()
        if is_armed and name in self._offered:
            self.dismiss(ANSWERS[name][1])

    @on(Button.Pressed)
    def button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(ANSWERS[event.button.id or "deny"][1])

    def action_deny(self) -> None:
        self.dismiss(ANSWERS["deny"][1])

    def action_scroll(self, pages: int) -> None:
        scroll = self.query_one(".exactly", VerticalScroll)
        scroll.scroll_relative(y=pages * max(1, scroll.size.height - 1), animate=False)


def _arguments_text(asked: PermissionAsked) -> str:
    """Exact, as JSON; texts of several lines are shown as they are."""
    lines: list[str] = []
    for name, value in asked.call.arguments.items():
        if isinstance(value, str) and "\n" in value:
            lines += [f"{name}:", *(f"  {line}" for line in value.split("\n"))]
        else:
            lines.append(f"{name}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) or "(no arguments)"


def diff_content(diff: str) -> Content:
    """A unified diff in colours."""
    styles = {"+": "$text-success", "-": "$text-error", "@": MUTED}
    lines = [Content.styled(line, styles.get(line[:1], "")) for line in clean(diff).split("\n")]
    return Content("\n").join(lines)
