"""The one file that reads environment variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FOR_COMMANDS = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "TZ")
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Environment:
    """What the environment says, read once at the start."""

    home: Path | None
    """HOTSLOT_HOME: moves settings, conversations, logs, models and cache at once."""
    is_colour_off: bool
    """NO_COLOR is set to anything but ''."""
    terminal: str
    """TERM, COLORTERM and what multiplexes the terminal, for a bug report."""

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> "Environment":
        """Read the process's environment, or the given one."""
        values = os.environ if variables is None else variables
        home = values.get("HOTSLOT_HOME", "")
        parts = [values.get("TERM", ""), values.get("COLORTERM", "")]
        parts += [name.lower() for name in ("TMUX", "STY", "SSH_CONNECTION") if values.get(name)]
        return cls(
            home=Path(home).expanduser().absolute() if home else None,
            is_colour_off=bool(values.get("NO_COLOR")),
            terminal=" ".join(part for part in parts if part) or "unknown",
        )


def command_variables(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a command that a model runs may know: where programs are, the language, the time zone. No secret.

    It is named what passes, so that nothing has to be known of what must not.
    """
    values = os.environ if variables is None else variables
    passed = {name: values[name] for name in _FOR_COMMANDS if name in values}
    # A relative entry would find programs in whatever folder the command works in.
    found = [entry for entry in values.get("PATH", _USUAL_PATH).split(":") if entry.startswith("/")]
    quiet = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
    return passed | quiet | {"PATH": ":".join(found) or _USUAL_PATH}


def reader_variables() -> dict[str, str]:
    """What the process that reads documents needs to start: where the system finds this Python's libraries."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
