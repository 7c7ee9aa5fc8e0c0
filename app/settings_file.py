"""The TOML file that keeps the settings.

A damaged file never stops the app: it is kept aside, and what is readable in it is used.
"""

import os
import time
import tomllib
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import tomli_w

from app.errors import SettingsError
from app.settings import SETTING_FIELDS, Settings, nearest_in_words


class SettingsFile:
    """The TOML file that keeps what differs from the defaults; names that are not known stay in it, and are told."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[Settings, str | None]:
        """Settings and, where something was wrong with the file, one line that says so. Never raises."""
        try:
            table, damage = self._read(), None
        except OSError as error:
            return Settings(), f"Settings can't be read ({self.path}: {error.strerror}); the defaults are used."
        except ValueError:
            table, damage = {}, f"The settings file was damaged; the defaults are used and {self._set_aside()}."
        settings, faults = self._repaired(table)
        unknown = self._unknown_names(table) if _foreign_entries(table) else None
        return settings, " ".join(filter(None, (damage, unknown, faults))) or None

    def update(self, before: Settings, after: Settings) -> str | None:
        """Add what changed from `before` to `after`, and say in one line what was found wrong with the file meanwhile.

        Where all of it is damaged, `after` is written in its place. Raises SettingsError.
        """
        try:
            settings, notice = self._repaired(self._read())
            settings = replace(settings, **changed_fields(before, after))
        except OSError as error:
            raise self._unsaved(error) from error
        except ValueError:
            settings = after
            notice = (
                f"The settings file was damaged; {self._set_aside()}, and the settings of this run were written anew."
            )
        self.save(settings)
        return notice

    def save(self, settings: Settings) -> None:
        """Write atomically; entries of the file that are not known stay. Raises SettingsError."""
        try:
            kept = _foreign_entries(self._read())
        except OSError as error:
            raise self._unsaved(error) from error
        except ValueError:
            kept = {}
        self._write(kept | _changed_entries(settings))

    def _read(self) -> dict[str, Any]:
        """All entries; none where there is no file. Raises OSError or, for what is no TOML, ValueError."""
        try:
            return tomllib.loads(self.path.read_bytes().decode("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def _repaired(self, table: dict[str, Any]) -> tuple[Settings, str | None]:
        """What is legal in it; the file is written without the rest, after it was kept aside, which is said."""
        settings, faults = _read_table(table)
        if not faults:
            return settings, None
        notice = f"Settings: {'; '.join(faults)}. The default is used and {self._set_aside()}."
        try:
            self._write(_foreign_entries(table) | _changed_entries(settings))
        except SettingsError:
            notice += " The repaired file could not be written."
        return settings, notice

    def _write(self, table: dict[str, Any]) -> None:
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                tomli_w.dump(table, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
        except OSError as error:
            _remove_quietly(partial)
            raise self._unsaved(error) from error

    def _unsaved(self, error: OSError) -> SettingsError:
        return SettingsError(
            f"Settings can't be saved ({self.path}: {error.strerror}); make it writable or set HOTSLOT_HOME."
        )

    def _set_aside(self) -> str:
        kept = self.path.with_name(f"{self.path.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        try:
            self.path.replace(kept)
        except OSError as error:
            return f"it could not be moved aside ({error.strerror})"
        return f"the old file is kept as {kept}"

    def _unknown_names(self, table: dict[str, Any]) -> str:
        """In one line, each with the known name that is nearest."""
        known = [setting.name for setting in SETTING_FIELDS]
        unknown = [f"{name!r}{nearest_in_words(name, known)}" for name in _foreign_entries(table)]
        return f"Settings: {self.path} has {', '.join(unknown)}, which Hotslot does not know: kept there, not used."


def changed_fields(before: Settings, after: Settings) -> dict[str, Any]:
    """Names and new values of the settings that differ."""
    values = {field.name: getattr(after, field.name) for field in fields(Settings)}
    return {name: value for name, value in values.items() if value != getattr(before, name)}


def _foreign_entries(table: dict[str, Any]) -> dict[str, Any]:
    known = {setting.name for setting in SETTING_FIELDS}
    return {name: value for name, value in table.items() if name not in known}


def _changed_entries(settings: Settings) -> dict[str, Any]:
    defaults = asdict(Settings())
    return {name: value for name, value in asdict(settings).items() if value != defaults[name] and value is not None}


def _read_table(table: dict[str, Any]) -> tuple[Settings, list[str]]:
    values: dict[str, Any] = {}
    faults: list[str] = []
    for setting in SETTING_FIELDS:
        if setting.name in table:
            try:
                values[setting.name] = setting.check(table[setting.name])
            except SettingsError as error:
                faults.append(str(error))
    return Settings(**values), faults


def _remove_quietly(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
