"""Small questions over the chat. Each is typed by its answer and does nothing but ask."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from app.tui.bindings import either_case
from app.tui.display import shown


class ConfirmScreen(ModalScreen[bool]):
    """Yes or no; no is where the focus is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(either_case("escape", "n"), "answer(False)", "No", show=False),
        Binding(either_case("y"), "answer(True)", "Yes", show=False),
        Binding("left,right", "app.focus_next", show=False),
    ]

    def __init__(self, question: str, yes: str) -> None:
        super().__init__(classes="dialog")
        self._question = question
        self._yes = yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(shown(self._question), markup=False, classes="question")
            with Horizontal(classes="buttons"):
                yield Button("Keep", id="no", compact=True)
                yield Button(self._yes, id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no", Button).focus()

    @on(Button.Pressed)
    def button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)


class AskTextScreen(ModalScreen[str | None]):
    """One line of text, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel", show=False)]

    def __init__(self, question: str, text: str) -> None:
        super().__init__(classes="dialog")
        self._question = question
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(shown(self._question), markup=False, classes="question")
            yield Input(self._text, compact=True)

    @on(Input.Submitted)
    def submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)
