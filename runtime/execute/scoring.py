"""Log-probabilities of given tokens from the logits of each step, and the logits themselves in a file if asked for."""

import json
import math
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import torch

from runtime.errors import RequestError
from runtime.protocol import Cancelled, EngineStats, Event, RequestStats, Scored, Usage
from runtime.schedule.request import Sequence
from runtime.schedule.step_plan import PlannedSegment

_TILE_ROWS = 16
"""Rows of logits that are held in fp64 at once: those of a whole chunk take more than the chunk itself."""


class LogitsFile:
    """A safetensors file with one tensor, `logits` fp32 [num_rows, vocab], written row block by row block.

    It appears under its name only when complete. Raises RequestError where it can't be written.
    """

    def __init__(self, path: Path, num_rows: int, vocab_size: int) -> None:
        self._path = path
        self._partial_path = path.with_name(f".{path.name}.{os.getpid()}.partial")
        num_bytes = num_rows * vocab_size * 4
        entry = {"dtype": "F32", "shape": [num_rows, vocab_size], "data_offsets": [0, num_bytes]}
        header = json.dumps({"logits": entry}).encode()
        # The format wants the data aligned to 8 bytes; spaces may pad the header.
        header += b" " * (-len(header) % 8)
        try:
            self._file: BinaryIO = self._partial_path.open("wb")
            self._file.write(struct.pack("<Q", len(header)) + header)
        except OSError as error:
            raise self._error(error) from error

    def append(self, logits: torch.Tensor) -> None:
        """The next rows, fp32 [rows, vocab]."""
        try:
            self._file.write(logits.contiguous().cpu().numpy().data)
        except OSError as error:
            raise self._error(error) from error

    def commit(self) -> None:
        """All rows are written: give the file its name."""
        try:
            self._file.close()
            self._partial_path.replace(self._path)
        except OSError as error:
            raise self._error(error) from error

    def discard(self) -> None:
        """Leave nothing behind."""
        # Closing writes what is buffered, which a full disk refuses again.
        with suppress(OSError):
            self._file.close()
        self._partial_path.unlink(missing_ok=True)

    def _error(self, error: OSError) -> RequestError:
        return RequestError(f"{self._path} can't be written ({error.strerror}); choose another file for the logits.")


class Scoring:
    """Implements `Work` for `Score`."""

    def __init__(self, sequence: Sequence, logits_file: LogitsFile | None, accepted_s: float) -> None:
        self.sequence = sequence
        self._targets = torch.tensor(sequence.prompt_ids, dtype=torch.int64)
        self._logits_file = logits_file
        self._logprobs: list[float] = []
        self._argmax: list[int] = []
        self._started_s = accepted_s
        self._ended_s = accepted_s

    @property
    def is_over(self) -> bool:
        return len(self._argmax) == len(self.sequence.prompt_ids)

    def started(self) -> list[Event]:
        return []

    def take(self, segment: PlannedSegment, logits: torch.Tensor, step_s: float, now_s: float) -> list[Event]:
        """What each token's logits say about the next one."""
        self._argmax.extend(logits.argmax(-1).tolist())
        targets = self._targets[segment.start + 1 : segment.end + 1].to(logits.device)
        for rows, next_tokens in zip(logits.split(_TILE_ROWS), targets.split(_TILE_ROWS), strict=False):
            scored = rows[: len(next_tokens)].double()
            logprobs = scored.gather(-1, next_tokens[:, None]).squeeze(-1) - scored.logsumexp(-1)
            self._logprobs.extend(logprobs.tolist())
        self._ended_s = now_s
        if self._logits_file is not None:
            self._logits_file.append(logits)
        return []

    def finished(self, stats: EngineStats) -> Scored:
        """All log-probabilities; the logits file gets its name. Mean and perplexity of a single token are 0 and 1."""
        if self._logits_file is not None:
            self._logits_file.commit()
        mean_nll = -sum(self._logprobs) / max(len(self._logprobs), 1)
        return Scored(
            self.sequence.sequence_id,
            self.sequence.prompt_ids,
            tuple(self._logprobs),
            tuple(self._argmax),
            mean_nll,
            _exp(mean_nll),
            stats,
            self._ended_s - self._started_s,
        )

    def cancelled(self, stats: EngineStats) -> Cancelled:
        """Nothing of a half-scored text is kept."""
        self.discard()
        usage = Usage(len(self.sequence.prompt_ids), 0, 0)
        return Cancelled(self.sequence.sequence_id, usage, RequestStats(engine=stats), (), "", "")

    def discard(self) -> None:
        """Remove the unfinished logits file."""
        if self._logits_file is not None:
            self._logits_file.discard()


def _exp(mean_nll: float) -> float:
    try:
        return math.exp(mean_nll)
    except OverflowError:
        return math.inf
