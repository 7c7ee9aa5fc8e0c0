"""Runs the real command line as a process of its own, as a user's shell would."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CONTROLS = {chr(code) for code in [*range(32), *range(0x7F, 0xA0)]} - set("\n\t") | set(
    "\u202a\u202b\u202c\u202d\u202e"
)


@dataclass(frozen=True)
class Ended:
    """How a run ended; both streams decoded."""

    status: int
    out: str
    err: str

    @property
    def is_clean(self) -> bool:
        """Nothing a terminal would act on, and no traceback."""
        return not CONTROLS & set(self.out + self.err) and "Traceback" not in self.err


def run_hotslot(
    *arguments: str | bytes,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120,
    prefix: tuple[str, ...] = (),
) -> Ended:
    """`hotslot ARGUMENTS` with piped streams; `prefix` is a command that runs it, such as a shell that sets limits."""
    variables = {**os.environ, "PYTHONPATH": str(REPO), **(env or {})}
    command = [*prefix, sys.executable, "-m", "app", *arguments]
    ended = subprocess.run(command, input=stdin, capture_output=True, env=variables, timeout=timeout_s)
    return Ended(ended.returncode, ended.stdout.decode("utf-8"), ended.stderr.decode("utf-8"))
