"""What runs beside the chat: state, tokens and latency of every side call. Cancels those that are chosen."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.chat.side_calls import SideCall, SideCalls
from app.figures import count_text, seconds_text
from app.tui.bindings import either_case
from app.tui.display import MUTED, shown

REFRESH_S = 0.5
KINDS = {"title": "Title", "summary": "Summary", "reading": "Reading", "aside": "Aside"}
STYLES = {"waiting": MUTED, "running": "$text-accent", "done": "$text-success", "failed": "$text-error"}


class SideCallsScreen(ModalScreen[None]):
    """Newest first; looks again every half second while it is open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f10", "dismiss(None)", "Back"),
        Binding(either_case("c", "delete"), "cancel", "Cancel"),
    ]

    def __init__(self, side_calls: SideCalls) -> None:
        super().__init__(classes="panel-screen")
        self._side_calls = side_calls
        self._listed: tuple[SideCall, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Side calls")
            box.border_subtitle = Content("C cancel · Esc back")
            yield OptionList(markup=False)
            words = "Nothing has run beside the chat yet: no titles, summaries, readings or asides."
            yield Static(Content(words), markup=False, classes="empty")

    def on_mount(self, event: events.Mount) -> None:
        self._list()
        self.query_one(OptionList).focus()
        self.set_interval(REFRESH_S, self._list)

    def _list(self) -> None:
        calls = tuple(reversed(self._side_calls.calls))
        options = self.query_one(OptionList)
        self.query_one(".empty").display = not calls
        options.display = bool(calls)
        if calls == self._listed:
            return
        chosen = self._chosen
        is_same = [call.id for call in calls] == [call.id for call in self._listed]
        self._listed = calls
        if is_same:
            for place, call in enumerate(calls):
                options.replace_option_prompt_at_index(place, _row(call))
            return
        options.clear_options()
        options.add_options([Option(_row(call)) for call in calls])
        ids = [call.id for call in calls]
        options.highlighted = ids.index(chosen.id) if chosen is not None and chosen.id in ids else 0

    @property
    def _chosen(self) -> SideCall | None:
        at = self.query_one(OptionList).highlighted
        return self._listed[at] if at is not None and at < len(self._listed) else None

    def action_cancel(self) -> None:
        if self._chosen is not None:
            self._side_calls.cancel(self._chosen.id)
            self.call_later(self._list)


def _row(call: SideCall) -> Content:
    facts = f"{count_text(call.usage.prompt_tokens)} tokens in, {count_text(call.usage.completion_tokens)} out"
    if call.latency_s is not None:
        facts += f" · {seconds_text(call.latency_s)}"
    problem = Content("\n    ") + shown(call.error, "$text-error") if call.error else Content("")
    state = (call.state, STYLES.get(call.state, MUTED))
    head = Content.assemble((f"{KINDS[call.kind]:<8} ", "bold"), shown(call.subject))
    return Content.assemble(head, "\n    ", state, (f" · {facts}", MUTED), problem)
