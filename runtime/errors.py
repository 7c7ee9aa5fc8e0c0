"""The errors a user may meet. Every message names the thing that is wrong and the next step, in one line."""


class HotslotError(Exception):
    """One readable line for a person: what is wrong, with which thing, and what to do next."""


class UsageError(HotslotError):
    """An option or argument has no meaning here (exit status 2)."""


class CheckpointError(HotslotError):
    """A model folder can't be used: names the file, and the tensor where there is one."""


class ConfigError(CheckpointError):
    """config.json has a value this version does not know or that contradicts itself."""


class BudgetError(HotslotError):
    """The plan does not fit: carries the numbers and the nearest thing that would."""


class RequestError(HotslotError):
    """A request can never be served as it is (too long, empty): nothing was computed."""


def prompt_too_long(num_tokens: int, context_tokens: int, *, is_least: bool = False) -> RequestError:
    """The error for a prompt of so many tokens or, where it was not worth counting them, at least so many."""
    return RequestError(
        f"The prompt has {'at least ' if is_least else ''}{num_tokens:,} tokens, but the context holds "
        f"{context_tokens:,} with the answer; shorten it, start a new chat, or load the model with a larger context."
    )


class TraceError(HotslotError):
    """A routing trace can't be read or written: names the file."""


class EngineError(HotslotError):
    """The engine process failed, died or could not be started."""


class DownloadError(HotslotError):
    """A model can't be fetched now. What was fetched is kept, and the next pull goes on from there."""


class DiskFullError(DownloadError):
    """The disk has no room for the rest: `missing_bytes` must be freed first."""

    def __init__(self, message: str, missing_bytes: int) -> None:
        super().__init__(message)
        self.missing_bytes = missing_bytes
