"""What an error says to a person: one line, and the class that names it. The traceback is in the log."""

import logging

from runtime.errors import HotslotError
from runtime.protocol import Failed

_logger = logging.getLogger("hotslot.engine")
_MOST_CHARACTERS = 200


def failure(request_id: str, what: str, error: Exception) -> Failed:
    """The last event of a request that ends with `error`; `what` failed, where the error was not foreseen."""
    if isinstance(error, HotslotError):
        return Failed(request_id, str(error), type(error).__name__)
    _logger.error("%s", what, exc_info=error)
    return Failed(request_id, one_line(what, error))


def one_line(what: str, error: Exception) -> str:
    """A line for a person about an error that was not foreseen."""
    detail = " ".join(str(error).split())
    if len(detail) > _MOST_CHARACTERS:
        detail = detail[:_MOST_CHARACTERS] + "…"
    return (
        f"{what} ({type(error).__name__}: {detail}); the engine log has the details. Send the message again to retry."
    )
