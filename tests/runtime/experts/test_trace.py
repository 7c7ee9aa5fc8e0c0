"""Routing traces: what was recorded is read back; what can't be trusted is refused; nothing half-made is left."""

import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from safetensors.numpy import load_file, save_file

from runtime.errors import TraceError
from runtime.experts.policy_rule import near_misses
from runtime.experts.trace import (
    CLEAR,
    DECODE,
    PREFILL,
    STEP,
    WORD,
    DecodeRouted,
    PrefillRouted,
    SlotsCleared,
    StepStarted,
    TraceEvent,
    TraceFacts,
    make_header,
    read_trace,
)
from runtime.experts.trace_writer import TraceWriter
from tests.support.random_traces import drive, record, shapes

FACTS = TraceFacts("tiny", num_layers=2, num_experts=8, num_choices=2)


class EventListener:
    """What a trace must hold, kept as it comes."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def begin_step(self) -> None:
        self.events.append(("step",))

    def decode(self, layer: int, expert_ids: np.ndarray, router_logits: np.ndarray) -> None:
        near = set(np.flatnonzero(near_misses(expert_ids, router_logits)).tolist())
        self.events.append(("decode", layer, expert_ids.tolist(), near))

    def prefill(self, layer: int, experts: list[int]) -> None:
        self.events.append(("prefill", layer, experts))

    def clear(self) -> None:
        self.events.append(("clear",))


def plain(event: TraceEvent) -> tuple[object, ...]:
    match event:
        case StepStarted():
            return ("step",)
        case DecodeRouted(layer, expert_ids, near):
            assert not set(near.tolist()) & set(expert_ids.reshape(-1).tolist())
            return ("decode", layer, expert_ids.tolist(), {*near.tolist(), *expert_ids.reshape(-1).tolist()})
        case PrefillRouted(layer, experts):
            return ("prefill", layer, experts)
        case SlotsCleared():
            return ("clear",)


@settings(max_examples=40, deadline=None)
@given(shape=shapes())
def test_what_was_recorded_is_read_back(
    shape: tuple[TraceFacts, int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("trace") / "a.trace"
    trace = record(path, *shape)
    listener = EventListener()
    drive(*shape, listener)
    assert [plain(event) for event in trace.events()] == listener.events
    assert trace.facts == shape[0]
    assert trace.num_steps == shape[2]
    assert [name.name for name in path.parent.iterdir()] == ["a.trace"]


def test_any_safetensors_reader_can_open_it(tmp_path: Path) -> None:
    trace = record(tmp_path / "a.trace", FACTS, 1, 3, 0)
    tensors = load_file(tmp_path / "a.trace")
    assert set(tensors) == {"words"}
    assert (tensors["words"] == trace.words).all()


def test_a_trace_of_nothing_is_a_trace(tmp_path: Path) -> None:
    trace = record(tmp_path / "a.trace", FACTS, 1, 0, 0)
    assert (trace.num_steps, trace.max_rows, list(trace.events())) == (0, 0, [])


def test_saving_replaces_and_discarding_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(b"old")
    writer = TraceWriter(path, FACTS)
    drive(FACTS, 1, 500, 0, writer)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    writer.discard()
    assert path.read_bytes() == b"old"
    assert record(path, FACTS, 1, 1, 0).num_steps == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("num_steps", [300, 20_000])
def test_a_disk_that_takes_no_more_is_said_when_saved_and_leaves_nothing(tmp_path: Path, num_steps: int) -> None:
    """As a full disk: no file may grow beyond 4 KiB. A short trace meets that at its end, a long one on its way."""
    path = tmp_path / "a.trace"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        writer = TraceWriter(path, FACTS)
        for _ in range(num_steps):
            writer.begin_step()
            writer.prefill(0, list(range(8)))
        with pytest.raises(TraceError, match=r"a\.trace can't be written \(File too large\); choose another file"):
            writer.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_can_not_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere/a\.trace can't be written"):
        TraceWriter(tmp_path / "nowhere" / "a.trace", FACTS)


def write(path: Path, words: list[int], facts: TraceFacts = FACTS) -> Path:
    path.write_bytes(make_header(facts, len(words)) + np.array(words, WORD).tobytes())
    return path


SOUND = [STEP, DECODE, 1, 1, 1, 3, 4, 7, PREFILL, 0, 2, 1, 0, CLEAR]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([*SOUND, 9], "unknown kind 9"),
        ([*SOUND, DECODE, 1], "middle of a frame"),
        ([*SOUND, DECODE, 1, 1, 1, 3, 4], "middle of a frame"),
        ([*SOUND, PREFILL, 0, 9, 1], "middle of a frame"),
        ([DECODE, 1, 1, 0, 3, 4], "before the first step"),
        ([STEP, DECODE, 1, 0, 0], "no row"),
        ([STEP, DECODE, 2, 1, 0, 3, 4], "layer 2 of 2"),
        ([STEP, DECODE, 0, 1, 0, 3, 8], "expert 8 of 8"),
        ([STEP, DECODE, 0, 1, 1, 3, 4, 9], "expert 9 of 8"),
        ([PREFILL, 0, 1, 8], "expert 8 of 8"),
        ([PREFILL, 0, 2, 5, 5], "an expert twice"),
    ],
)
def test_damaged_frames_are_refused_by_file_and_reason(tmp_path: Path, words: list[int], reason: str) -> None:
    read_trace(write(tmp_path / "sound", SOUND))
    with pytest.raises(TraceError, match=f"damaged is damaged: .*{reason}.*; record it again"):
        read_trace(write(tmp_path / "damaged", words))


@pytest.mark.parametrize(
    "facts",
    [
        TraceFacts("x", 0, 8, 2),
        TraceFacts("x", 2, 8, 0),
        TraceFacts("x", 2, 8, 9),
        TraceFacts("x", -1, 8, 1),
        TraceFacts("x", 1 << 30, 1 << 30, 2),
    ],
)
def test_impossible_models_are_refused(tmp_path: Path, facts: TraceFacts) -> None:
    with pytest.raises(TraceError, match="not a routing trace of this version"):
        read_trace(write(tmp_path / "a", SOUND, facts))


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    def write_bytes(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    sound = write(tmp_path / "sound", SOUND).read_bytes()
    others = [
        write_bytes("empty", b""),
        write_bytes("text", b"hello there"),
        write_bytes("long", b"\xff" * 64),
        write_bytes("cut", sound[:-2]),
        write_bytes("newer", sound.replace(b'"version": "1"', b'"version": "2"')),
        write_bytes("nameless", sound.replace(b'"words"', b'"wordz"')),
        write_bytes("signed", sound.replace(b"U16", b"I16")),
    ]
    save_file({"words": np.zeros(3, np.uint16)}, tmp_path / "weights")
    for path in [*others, tmp_path / "weights"]:
        with pytest.raises(TraceError, match=f"{path.name} is not a routing trace of this version; record one"):
            read_trace(path)
    for path in (tmp_path / "missing", tmp_path, Path("/dev/null")):
        with pytest.raises(TraceError, match=r"There is no file .*check the path"):
            read_trace(path)
