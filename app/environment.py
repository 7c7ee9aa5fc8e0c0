"""The one file that reads environment variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


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
