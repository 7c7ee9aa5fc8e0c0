"""Settings by the names and values that a user writes. Touches no file."""

from dataclasses import replace

from app.errors import SettingsError
from app.settings import SETTING_FIELDS, SettingField, Settings


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
