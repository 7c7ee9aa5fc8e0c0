"""A routing trace: which experts a model's steps routed to, in a file that any slot count and policy can replay.

The file is safetensors with one tensor, `words` uint16, and the model's facts as its metadata. Words are frames:

    STEP                                                   one decode step starts
    DECODE layer rows near  rows x k experts  near experts  one layer of it
    PREFILL layer count  count experts                      one layer of a prefill chunk, experts most routed first
    CLEAR                                                   every slot was emptied

Near experts are those that `rule` refreshes without their being routed (see `policy_rule.near_misses`): with them every
policy decides as it did over the router's logits, at a small part of their size. Refuses a file that it can't trust.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from runtime.errors import TraceError

STEP, DECODE, PREFILL, CLEAR = range(4)
WORD = np.dtype("<u2")
_FORMAT, _VERSION = "hotslot-routing-trace", "1"
_MOST_EXPERTS = 1 << 20
"""Of all layers: far above any model, and small enough to hold state for."""


@dataclass(frozen=True)
class TraceFacts:
    """What a replay must know of the model."""

    model: str
    num_layers: int
    num_experts: int
    """Of one layer."""
    num_choices: int
    """Experts per token and layer."""

    @property
    def num_all_experts(self) -> int:
        return self.num_layers * self.num_experts


@dataclass(frozen=True)
class StepStarted:
    """One decode step, whatever its number of rows."""


@dataclass(frozen=True)
class DecodeRouted:
    """One layer of a decode step."""

    layer: int
    expert_ids: NDArray[np.int64]
    """[rows, k]"""
    near: NDArray[np.int64]
    """Experts that were nearly routed."""


@dataclass(frozen=True)
class PrefillRouted:
    """One layer of a prefill chunk: distinct experts, most routed first."""

    layer: int
    experts: list[int]


@dataclass(frozen=True)
class SlotsCleared:
    """The engine emptied every slot."""


TraceEvent = StepStarted | DecodeRouted | PrefillRouted | SlotsCleared


@dataclass(frozen=True)
class RoutingTrace:
    """A trace that was read and found sound."""

    name: str
    facts: TraceFacts
    words: NDArray[np.uint16]
    num_steps: int
    max_rows: int

    def events(self) -> Iterator[TraceEvent]:
        """All of it, in order."""
        return _events(self.words, self.facts.num_choices)


def make_header(facts: TraceFacts, num_words: int) -> bytes:
    """The bytes that come before the words."""
    metadata = {"format": _FORMAT, "version": _VERSION} | {name: str(value) for name, value in asdict(facts).items()}
    entry = {"dtype": "U16", "shape": [num_words], "data_offsets": [0, num_words * WORD.itemsize]}
    header = json.dumps({"__metadata__": metadata, "words": entry}).encode()
    # The format wants the data aligned to 8 bytes; spaces may pad the header.
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


def read_trace(path: Path) -> RoutingTrace:
    """Raises TraceError naming the file and what is wrong with it."""
    try:
        if not path.is_file():
            raise TraceError(f"There is no file {path}; check the path.")
        with safe_open(path, framework="np") as file:
            facts = _read_facts(file.metadata() or {})
            words = file.get_tensor("words")
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise TraceError(f"{path} can't be read ({reason}); check the path.") from error
    except (SafetensorError, ValueError, OverflowError) as error:
        raise _not_a_trace(path) from error
    if words.dtype != WORD or words.ndim != 1:
        raise _not_a_trace(path)
    try:
        num_steps, max_rows = _check(words, facts)
    except ValueError as error:
        raise TraceError(f"{path} is damaged: {error}; record it again.") from error
    return RoutingTrace(str(path), facts, words, num_steps, max_rows)


def _not_a_trace(path: Path) -> TraceError:
    return TraceError(f"{path} is not a routing trace of this version; record one with hotslot ask --trace FILE.")


def _read_facts(metadata: dict[str, str]) -> TraceFacts:
    """Raises ValueError."""
    if (metadata.get("format"), metadata.get("version")) != (_FORMAT, _VERSION):
        raise ValueError("another format")
    counts = [int(metadata.get(name, "")) for name in ("num_layers", "num_experts", "num_choices")]
    facts = TraceFacts(metadata.get("model", ""), *counts)
    if not (1 <= facts.num_choices <= facts.num_experts and facts.num_layers >= 1):
        raise ValueError("impossible facts")
    if facts.num_all_experts > _MOST_EXPERTS:
        raise ValueError("too many experts")
    return facts


def _check(words: NDArray[np.uint16], facts: TraceFacts) -> tuple[int, int]:
    """Decode steps, and the most rows of a call. Raises ValueError where a frame can't be."""
    num_steps = max_rows = 0
    for event in _events(words, facts.num_choices):
        match event:
            case StepStarted():
                num_steps += 1
            case DecodeRouted(layer, expert_ids, near):
                if not num_steps:
                    raise ValueError("a decode call comes before the first step")
                if not len(expert_ids):
                    raise ValueError("a decode call has no row")
                max_rows = max(max_rows, len(expert_ids))
                _check_ids(facts, layer, [*expert_ids.reshape(-1).tolist(), *near.tolist()])
            case PrefillRouted(layer, experts):
                _check_ids(facts, layer, experts)
                if len(set(experts)) != len(experts):
                    raise ValueError("a prefill call has an expert twice")
    return num_steps, max_rows


def _check_ids(facts: TraceFacts, layer: int, experts: list[int]) -> None:
    if layer >= facts.num_layers:
        raise ValueError(f"layer {layer} of {facts.num_layers}")
    if max(experts, default=0) >= facts.num_experts:
        raise ValueError(f"expert {max(experts)} of {facts.num_experts}")


def _events(words: NDArray[np.uint16], num_choices: int) -> Iterator[TraceEvent]:
    """Raises ValueError at a frame that is unknown or cut off."""
    at = 0
    while at < len(words):
        kind = int(words[at])
        if kind == STEP:
            yield StepStarted()
            at += 1
        elif kind == DECODE:
            layer, num_rows, num_near = _take(words, at + 1, 3).tolist()
            at += 4
            num_routed = num_rows * num_choices
            ids = _take(words, at, num_routed + num_near).astype(np.int64)
            yield DecodeRouted(layer, ids[:num_routed].reshape(num_rows, num_choices), ids[num_routed:])
            at += len(ids)
        elif kind == PREFILL:
            layer, num_experts = _take(words, at + 1, 2).tolist()
            at += 3
            yield PrefillRouted(layer, _take(words, at, num_experts).tolist())
            at += num_experts
        elif kind == CLEAR:
            yield SlotsCleared()
            at += 1
        else:
            raise ValueError(f"a frame of the unknown kind {kind}")


def _take(words: NDArray[np.uint16], start: int, num_words: int) -> NDArray[np.uint16]:
    taken = words[start : start + num_words]
    if len(taken) != num_words:
        raise ValueError("it ends in the middle of a frame")
    return taken
