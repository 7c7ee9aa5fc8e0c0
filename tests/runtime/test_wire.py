"""The pipe carries protocol messages and nothing else."""

import os
import pickle
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import worker
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import Cancel, ChatMessage, Command, Generate, GetStats, LoadModel, ToolCall, ToolSchema
from runtime.wire import Wire


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    first, second = socket.socketpair()
    pair = Wire(first.detach()), Wire(second.detach())
    yield pair
    for wire in pair:
        wire.close()


def test_messages_arrive_as_they_were_sent(ends: tuple[Wire, Wire]) -> None:
    call = ToolCall("f", {"a": [1, None, {"b": "ü"}]})
    messages = (ChatMessage("assistant", "hi \ud800", tool_calls=(call,), generated_ids=(1, 2)),)
    sent = Generate("r", messages, SamplingOptions(seed=3), (ToolSchema("f", "", {"type": "object"}),), True)
    load = LoadModel(EngineOptions(Path("/somewhere")))
    for message in (sent, load):
        ends[0].send(message)
        assert ends[1].receive() == message


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize("thing", [Evil(), os.path.join, pickle.Pickler])
def test_anything_else_is_refused(ends: tuple[Wire, Wire], thing: object) -> None:
    ends[0].send(thing)
    with pytest.raises(pickle.UnpicklingError):
        ends[1].receive()


def test_a_closed_end_is_an_end(ends: tuple[Wire, Wire]) -> None:
    first, second = socket.socketpair()
    wire = Wire(first.detach())
    second.close()
    with pytest.raises((EOFError, OSError)):
        wire.receive()
    wire.close()


def test_a_cancel_is_known_before_the_engine_gets_to_it(
    ends: tuple[Wire, Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    cancelled: set[str] = set()
    reader = threading.Thread(target=worker._read, args=(ends[1], commands, cancelled))
    reader.start()
    for command in (GetStats("a"), Cancel("b")):
        ends[0].send(command)
    assert (commands.get(timeout=10), commands.get(timeout=10)) == (GetStats("a"), Cancel("b"))
    assert cancelled == {"b"}
    ends[0].close()
    reader.join(10)
    assert ended == [0]
