"""Keys, slash commands and what the figures mean: read from the action table and the engine's last figures."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.actions import ACTIONS, Action
from app.tui.display import shown


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
                    for action in ACTIONS:
                        if action.group == group:
                            yield HelpLine(action)
                if self._figures:
                    yield Static(Content("The figures now"), markup=False, classes="group")
                    for line in self._figures:
                        yield Static(shown(line), markup=False, classes="help-figure")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class HelpLine(Horizontal):
    """Keys of one action, and what it does."""

    def __init__(self, action: Action) -> None:
        super().__init__(
            Static(Content(action.key_text), markup=False, classes="help-keys"),
            Static(help_text(action), markup=False, classes="help-words"),
            classes="help-line",
        )


def help_text(action: Action) -> Content:
    """What an action does, with its slash command."""
    if not action.command:
        return Content(action.help)
    argument = f" [{action.argument}]" if action.argument else ""
    return Content.assemble(action.help, "  ", (f"/{action.command}{argument}", "$text-accent"))
