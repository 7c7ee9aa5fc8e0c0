"""What an empty chat shows: the name, the model, and the last conversations, one click away."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.messages import Conversation
from app.tui.display import shown

MOST_RECENT = 5


class Welcome(Vertical):
    """Goes away with the first message."""

    DEFAULT_CSS = """
    Welcome {
        height: auto;
        padding: 1 2;
        .title { color: $text-primary; text-style: bold; }
        .about { color: $text-muted; margin: 0 0 1 0; }
        .recent { color: $text-muted; text-style: bold; }
        RecentChat { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
        RecentChat:hover, RecentChat:focus { color: $text-accent; text-style: underline; }
    }
    """

    class ChatChosen(Message):
        """The user wants to go on with this conversation."""

        def __init__(self, conversation_id: str) -> None:
            super().__init__()
            self.conversation_id = conversation_id

    def __init__(self, about: str, recent: Sequence[Conversation]) -> None:
        super().__init__()
        self._about = about
        self._recent = tuple(recent)[:MOST_RECENT]

    def compose(self) -> ComposeResult:
        yield Static(Content("Hotslot"), markup=False, classes="title")
        yield Static(shown(self._about), markup=False, classes="about")
        if self._recent:
            yield Static(Content("Recent chats"), markup=False, classes="recent")
            for conversation in self._recent:
                yield RecentChat(conversation)


class RecentChat(Static, can_focus=True):
    """One conversation; a click or Enter opens it."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "open", "Open")]

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(Content("  ↳ ") + shown(conversation.title or "Untitled"), markup=False)
        self._conversation_id = conversation.id

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        self.post_message(Welcome.ChatChosen(self._conversation_id))
