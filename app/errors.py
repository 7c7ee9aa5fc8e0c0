"""The app's errors: all are `HotslotError`, one readable line each, shown to the user as they are."""

from runtime.errors import HotslotError


class SettingsError(HotslotError):
    """A settings file or value can't be used."""


class StoreError(HotslotError):
    """The conversation database can't be opened or written."""


class ModelNameError(HotslotError):
    """`--model` names nothing that can be used here."""


class AttachmentError(HotslotError):
    """A file can't go with a message: missing, unreadable, not text, too large."""


class ReadingError(HotslotError):
    """A document can't be read in the way that was chosen, or in none."""


class TurnInProgressError(HotslotError):
    """A chat does one thing at a time."""


class SideCallError(HotslotError):
    """A side call has no answer; the chat goes on without it."""


class SideCallCancelledError(SideCallError):
    """The user stopped a side call."""


class ArchiveError(HotslotError):
    """A file of an exported conversation can't be read or written."""


class OutputError(HotslotError):
    """What the answer is written to takes no more."""


class BenchError(HotslotError):
    """A bench of the runtime did not end with a report."""
