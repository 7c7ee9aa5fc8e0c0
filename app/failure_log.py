"""The app's log: what failed and where in the code. Holds no chat text, so that it can go with a bug report."""

import logging
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path

MAX_LOG_BYTES = 1 << 20


def log_failure(log_file: Path, error: BaseException) -> bool:
    """Append the kind of error and the lines of code it passed; its message may hold chat text and is left out.

    False where the log can't be written.
    """
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(log_file, maxBytes=MAX_LOG_BYTES, backupCount=2, encoding="utf-8", delay=False)
    except OSError:
        return False
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    record = logging.LogRecord("hotslot", logging.ERROR, __file__, 0, describe_failure(error), None, None)
    handler.handle(record)
    handler.close()
    return True


def describe_failure(error: BaseException) -> str:
    """Type and frames of an error and of its causes."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < 8:
        frames = "".join(traceback.format_tb(current.__traceback__))
        parts.append(f"{type(current).__module__}.{type(current).__qualname__}\n{frames}")
        current = current.__cause__ or current.__context__
    return "caused by ".join(parts).rstrip()
