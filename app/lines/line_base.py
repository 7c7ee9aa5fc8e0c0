"""What every group of slash commands works with, and how each answers: results to stdout, remarks to stderr."""

from dataclasses import dataclass, field

from app.chat.session import ChatSession
from app.chat.toolset import ToolSet
from app.console import Console
from app.documents.reading_plan import ReadingChoice
from app.lines.line_input import LineInput
from app.locations import Locations
from app.messages import Attachment
from app.settings import Settings
from app.settings_file import SettingsFile
from app.store.conversations import Store


@dataclass
class LineState:
    """The chat, its places and streams, and what waits for the next message. Shared by all groups of commands."""

    session: ChatSession
    store: Store
    locations: Locations
    console: Console
    input: LineInput
    toolset: ToolSet
    attachments: list[Attachment] = field(default_factory=list)
    reading: ReadingChoice = "auto"
    """How the model is to be shown the documents of the next messages."""


class LineCommands:
    """One group: a method `do_NAME(argument)` for each action NAME of the table that it answers."""

    def __init__(self, state: LineState) -> None:
        self.state = state
        self.session = state.session
        self.store = state.store
        self.console = state.console

    def change_settings(self, settings: Settings) -> None:
        """Use the settings from the next message on and keep what changed. Raises SettingsError if it can't be kept."""
        before = self.session.settings
        self.session.apply_settings(settings)
        self.state.toolset.apply(settings)
        if notice := SettingsFile(self.state.locations.config_file).update(before, settings):
            self.console.notice(notice)
