"""Keys, slash commands and what the figures mean: read from the action table and the engine's last figures."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from app.actions import ACTIONS, Action
from app.tui.display import shown

KEYS_WIDTH, NARROW_KEYS_WIDTH = 32, 16
"""Columns of the keys, the space after them included; the second on a narrow terminal."""


class HelpScreen(ModalScreen[None]):
    """Scrolls with the arrows; Esc, Q or the key that opened it closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Back", priority=True)]

    def __init__(self, figures: Sequence[str]) -> None:
        super().__init__(classes="panel-screen")
        self._figures = figures

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Help")
            box.border_subtitle = Content("Esc back")
            with VerticalScroll():
                for group in dict.fromkeys(action.group for action in ACTIONS):
                    yield Static(Content(group), markup=False, classes="group")
                    yield HelpTable([action for action in ACTIONS if action.group == group])
                if self._figures:
                    yield Static(Content("The figures now"), markup=False, classes="group")
                    for line in self._figures:
                        yield Static(shown(line), markup=False, classes="help-figure")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class HelpTable(Widget):
    """Keys of some actions, and beside them what each does. One widget: two for each action take half a second."""

    DEFAULT_CSS = "HelpTable { height: auto; }"

    def __init__(self, actions: Sequence[Action]) -> None:
        super().__init__()
        self._actions = actions

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        keys_width = NARROW_KEYS_WIDTH if self.screen.has_class("-narrow") else KEYS_WIDTH
        lines: list[Content] = []
        for action in self._actions:
            keys = Content.styled(action.key_text, "$text-accent").wrap(keys_width - 1)
            words = help_text(action).wrap(max(width - keys_width, 1))
            for left, right in zip_longest(keys, words, fillvalue=Content()):
                lines.append(Content.assemble(left, " " * (keys_width - left.cell_length), right))
        return lines


def help_text(action: Action) -> Content:
    """What an action does, with its slash command."""
    if not action.command:
        return Content(action.help)
    argument = f" [{action.argument}]" if action.argument else ""
    return Content.assemble(action.help, "  ", (f"/{action.command}{argument}", "$text-accent"))
