"""The documents of the chat and how each is shown to the model. Its answer is the one to read, or None."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.figures import count_text
from app.messages import Attachment
from app.tui.display import MUTED, shown

MODES = {"whole": "shown whole", "passages": "passages of it shown", "all": "read in pieces, notes shown"}


class DocumentsScreen(ModalScreen[Attachment | None]):
    """Oldest first; those that wait for the next message last."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f7", "dismiss(None)", "Back")]

    def __init__(self, sent: Sequence[Attachment], waiting: Sequence[Attachment]) -> None:
        super().__init__(classes="panel-screen")
        self._documents = (*sent, *waiting)
        self._num_sent = len(sent)

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Documents")
            box.border_subtitle = Content("Enter read · Esc back")
            rows = [Option(self._row(place, document)) for place, document in enumerate(self._documents)]
            options = OptionList(*rows, markup=False)
            options.display = bool(rows)
            yield options
            empty = Static(Content("No document yet: /attach, or drop a file here."), markup=False, classes="empty")
            empty.display = not rows
            yield empty

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def _row(self, place: int, document: Attachment) -> Content:
        if place >= self._num_sent:
            how = "goes with the next message"
        else:
            how = MODES[document.reading.mode if document.reading is not None else "whole"]
        facts = f"{count_text(len(document.text))} characters · {how}"
        return Content.assemble(shown(document.name, "bold"), ("\n    " + facts, MUTED))

    @on(OptionList.OptionSelected)
    def chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._documents[event.option_index])
