"""The app's errors: all are `HotslotError`, one readable line each, shown to the user as they are."""

from runtime.errors import HotslotError


class SettingsError(HotslotError):
    """A settings file or value can't be used."""


class StoreError(HotslotError):
    """The conversation database can't be opened or written."""
