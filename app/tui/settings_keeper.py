"""Writes changed settings to the user's file, and only what the user changed: options of this run are not kept."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from app.settings import Settings
from app.settings_file import SettingsFile


def changed_fields(before: Settings, after: Settings) -> dict[str, Any]:
    """Names and new values of the settings that differ."""
    values = {field.name: getattr(after, field.name) for field in fields(Settings)}
    return {name: value for name, value in values.items() if value != getattr(before, name)}


def keep_changes(path: Path, before: Settings, after: Settings) -> None:
    """Add what changed to the file. Raises SettingsError if it can't be written."""
    file = SettingsFile(path)
    kept, _ = file.load()
    file.save(replace(kept, **changed_fields(before, after)))
