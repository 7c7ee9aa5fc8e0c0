"""Records what the steps of an engine route to, while it runs. Owns the file until it is saved or let go.

Words go to an unnamed file beside the trace's own place, so that a trace of any length takes no memory and an engine
that ends leaves nothing behind. A disk that is full ends the recording, never the answer; `save` then says so.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime.errors import TraceError
from runtime.experts.policy_rule import near_misses
from runtime.experts.trace import CLEAR, DECODE, PREFILL, STEP, WORD, TraceFacts, make_header

_BUFFER_BYTES = 1 << 18


class TraceWriter:
    """One trace. Calls come in the order of the engine's own; raises TraceError where the file can't be made."""

    def __init__(self, path: Path, facts: TraceFacts) -> None:
        self._path, self._facts = path, facts
        self.num_steps = 0
        self._num_words = 0
        self._failure: OSError | None = None
        try:
            self._spool = tempfile.TemporaryFile(dir=path.parent, buffering=_BUFFER_BYTES)  # noqa: SIM115 (closed by `discard`)
        except OSError as error:
            raise self._error(error) from error

    def begin_step(self) -> None:
        """One decode step starts."""
        self.num_steps += 1
        self._put([STEP])

    def decode(self, layer: int, expert_ids: NDArray[np.int64], router_logits: NDArray[np.float32]) -> None:
        """One layer of it: expert_ids [rows, k], router_logits [rows, num_experts]."""
        is_near = near_misses(expert_ids, router_logits)
        is_near[expert_ids] = False
        near = np.flatnonzero(is_near)
        self._put([DECODE, layer, len(expert_ids), len(near), *expert_ids.reshape(-1), *near])

    def prefill(self, layer: int, experts: list[int]) -> None:
        """One layer of a prefill chunk: distinct experts, most routed first."""
        self._put([PREFILL, layer, len(experts), *experts])

    def clear(self) -> None:
        """Every slot was emptied."""
        self._put([CLEAR])

    def save(self) -> None:
        """Give the trace its name, complete or not at all. Raises TraceError; the writer is used up either way."""
        partial_path = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
        try:
            if self._failure is not None:
                raise self._failure
            self._spool.seek(0)
            with partial_path.open("wb") as file:
                file.write(make_header(self._facts, self._num_words))
                shutil.copyfileobj(self._spool, file, _BUFFER_BYTES)
            partial_path.replace(self._path)
        except OSError as error:
            partial_path.unlink(missing_ok=True)
            raise self._error(error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Keep nothing."""
        # Closing writes what is buffered, which a full disk refuses again.
        with suppress(OSError):
            self._spool.close()

    def _put(self, words: list[int]) -> None:
        if self._failure is not None:
            return
        try:
            self._spool.write(np.array(words, WORD).tobytes())
            self._num_words += len(words)
        except OSError as error:
            self._failure = error

    def _error(self, error: OSError) -> TraceError:
        return TraceError(f"{self._path} can't be written ({error.strerror}); choose another file for the trace.")
