"""Measures what an engine process holds before it loads a model, by starting one: of a small plan that is most."""

import subprocess
import sys

from runtime.errors import EngineError

TIMEOUT_S = 60
MEASURE = """
import runtime.execute.engine
from runtime.telemetry.process_memory import library_bytes, resident_bytes
print(resident_bytes(), library_bytes())
"""


def measure_process_base(environment: dict[str, str]) -> tuple[int, int]:
    """Bytes held, and what of them is mapped from libraries, of an engine process with this environment.

    Takes as long as importing torch. Raises EngineError where no engine can start.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-c", MEASURE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        held, mapped = map(int, ended.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EngineError(
            "The engine's own size can't be measured: it does not start; see `hotslot doctor`."
        ) from error
    return held, mapped
