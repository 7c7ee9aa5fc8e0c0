"""Typed reading of config.json: every value a family uses goes through here, and what it can't mean is refused by name.

Refuses: missing values without a default, wrong types, values outside a stated choice or range. Never guesses.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.errors import ConfigError

MAX_INTEGER = 2**31
"""Beyond it a size is a mistake, and computing with it may take forever."""


class ConfigReader:
    """Reads one JSON object; `source` (a file or folder) and `section` name it in errors."""

    def __init__(self, values: Mapping[str, Any], source: str, section: str = "") -> None:
        self._values = values
        self._source = source
        self._section = section

    def refuse(self, key: str, why: str) -> ConfigError:
        """The error for a value that is known but not usable; the caller raises it."""
        return ConfigError(f"{self._source}: {self._section}{key} {why}")

    def has(self, key: str) -> bool:
        """Whether a value other than null is given."""
        return self._values.get(key) is not None

    def integer(self, key: str, default: int | None = None, minimum: int = 1, maximum: int = MAX_INTEGER) -> int:
        """An integer from `minimum` to `maximum`; a missing value without default is refused."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(key, f"is {value!r}; a whole number is needed")
        if value < minimum:
            raise self.refuse(key, f"is {_short(value)}; at least {minimum} is needed")
        if value > maximum:
            raise self.refuse(key, f"is {_short(value)}; at most {maximum} makes sense")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._get(key, default)
        # The largest float as bound, not infinity: an integer may lie between them.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise self.refuse(key, f"is {_short(value)}; a number above 0 is needed")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, f"is {value!r}; true or false is needed")
        return value

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of a few words."""
        value = self._get(key, default)
        if value not in choices:
            raise self.refuse(key, f"is {value!r}; this version knows {', '.join(choices)}")
        return str(value)

    def integers(self, key: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """A list of whole numbers from 0, or a single one; null counts as missing."""
        value = self._values.get(key)
        items = list(default) if value is None else value if isinstance(value, list) else [value]
        if any(isinstance(item, bool) or not isinstance(item, int) for item in items):
            raise self.refuse(key, f"is {value!r}; whole numbers are needed")
        for item in items:
            if not 0 <= item <= MAX_INTEGER:
                raise self.refuse(key, f"has {_short(item)}; numbers from 0 to {MAX_INTEGER} make sense")
        return tuple(items)

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of strings, or None where it is missing."""
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise self.refuse(key, f"is {value!r}; a list of names is needed")
        return tuple(value)

    def section(self, key: str) -> "ConfigReader":
        """A nested object; missing counts as empty."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.refuse(key, f"is {value!r}; an object is needed")
        return ConfigReader(value or {}, self._source, f"{self._section}{key}.")

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is None:
            raise self.refuse(key, "is missing; the config.json that belongs to the weights has it")
        return default


def _short(value: Any) -> str:
    """The value as a message can show it: a number may have thousands of digits."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
