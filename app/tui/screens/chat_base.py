"""What every part of the chat screen works with: the session, the places, the widgets, and one way to say something."""

from textual.screen import Screen

from app.chat.session import ChatSession
from app.locations import Locations
from app.store.conversations import Store
from app.tui.display import shown
from app.tui.widgets.attachment_tray import AttachmentTray
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.queue_view import QueueView
from app.tui.widgets.status_bar import StatusBar
from app.tui.widgets.transcript import Transcript


class ChatBase(Screen[None]):
    """Does nothing by itself; its parts share the state of the turn."""

    def __init__(self, session: ChatSession, store: Store, locations: Locations) -> None:
        super().__init__()
        self.session = session
        self._store = store
        self.locations = locations
        self._is_busy = False
        """A turn or a start of the engine runs, or its last events are not drawn yet."""
        self._is_answering = False
        """What runs is an answer, which can be stopped."""

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    @property
    def queue(self) -> QueueView:
        return self.query_one(QueueView)

    @property
    def attachments(self) -> AttachmentTray:
        return self.query_one(AttachmentTray)

    @property
    def status(self) -> StatusBar:
        return self.query_one(StatusBar)

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    def say(self, text: str, severity: str = "information") -> None:
        """Show one line for a few seconds."""
        self.notify(shown(text).plain, severity=severity, markup=False)  # type: ignore[arg-type]

    def refuse_while_running(self) -> bool:
        """Whether something runs that has to end first; the user is told so."""
        if self._is_busy:
            self.say("Wait for the answer, or press Esc to stop it.", "warning")
        return self._is_busy

    # ---- offered by the chat screen to its parts

    def show_title(self) -> None:
        """Draw the title of the conversation and the hints of the prompt."""
        raise NotImplementedError

    async def show_conversation(self) -> None:
        """Draw the open conversation from its beginning."""
        raise NotImplementedError
