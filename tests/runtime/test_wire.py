"""The pipe carries protocol messages and nothing else."""

import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import ChatMessage, Generate, LoadModel, ToolCall, ToolSchema
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
