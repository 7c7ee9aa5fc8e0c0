"""Changes settings by name, and writes to the user's file what the user changed: options of this run are not kept."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.settings import SETTING_FIELDS, SettingField, Settings
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


def setting_named(name: str) -> SettingField:
    """The setting of this name or label, in any case and with - or _. Raises SettingsError listing the names."""
    wanted = name.strip().lower().replace("-", "_")
    for field in SETTING_FIELDS:
        if wanted in (field.name, field.info.label.lower().replace("-", "_")):
            return field
    names = ", ".join(field.name for field in SETTING_FIELDS)
    raise SettingsError(f"There is no setting '{name}'; there are {names}.")


def with_setting(settings: Settings, name: str, written: str) -> Settings:
    """The settings with one changed as a user writes it; '-' stands for its default. Raises SettingsError."""
    field = setting_named(name)
    if written.strip() == "-":
        return replace(settings, **{field.name: field.default})
    if field.kind is bool:
        written = {"on": "true", "off": "false"}.get(written.strip().lower(), written)
    return replace(settings, **{field.name: field.parse(written)})
