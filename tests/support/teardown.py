"""Ends decode on a GPU in one order, then decodes once more: `python -m tests.support.teardown ORDER`."""

import gc
import sys
from typing import Any

import pytest
import torch

from runtime.execute.engine import Engine
from runtime.execute.streams import DecodeStreams
from runtime.kernels.ops import select_ops
from runtime.options import EngineOptions
from runtime.protocol import Event, Loaded, LoadFailed, LoadModel, LoadProgressed
from tests.support.engine_driver import DEMO_FOLDER
from tests.support.synthetic_decode import SyntheticDecode

_DEVICE = torch.device("cuda")


def decode(streams: DecodeStreams) -> tuple[SyntheticDecode, torch.Tensor]:
    """Everything that a step leaves behind: graphs, pinned inputs that were copied from, workspaces, locked records."""
    steps = SyntheticDecode(select_ops(_DEVICE), _DEVICE, streams, num_layers=2, max_rows=2)
    return steps, steps.run("resident", 2, 4)[3]


def streams_first() -> None:
    """What decoded outlives its streams."""
    for _ in range(4):
        streams = DecodeStreams(_DEVICE)
        steps, _ = decode(streams)
        streams.close()
        del steps
        gc.collect()


def streams_never() -> None:
    """As after an error: nothing is closed, and everything is collected at once, or much later."""
    kept = []
    for _ in range(4):
        kept.append(decode(DecodeStreams(_DEVICE)))
        gc.collect()
    kept.clear()
    gc.collect()


def within_a_capture() -> None:
    """The collector runs while a graph is captured, and would find another one and the memory that it locked."""
    gc.set_threshold(0)
    decode(DecodeStreams(_DEVICE))
    steps = SyntheticDecode(select_ops(_DEVICE), _DEVICE, DecodeStreams(_DEVICE), num_layers=2, max_rows=2)
    launch = steps.decoder.decode

    def collecting(*arguments: Any) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            gc.set_threshold(1, 1, 1)
        return launch(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps.decoder, "decode", collecting)
        steps.run("resident", 2, 4)


def load_fails() -> None:
    """Twice at its very end, when steps have run and graphs exist; then the same load succeeds."""
    events: list[Event] = []
    fails = True

    def send(event: Event) -> None:
        events.append(event)
        if fails and isinstance(event, LoadProgressed) and event.phase == "warmup" and event.done_bytes:
            raise RuntimeError("stop here")

    engine, options = Engine(send), EngineOptions(DEMO_FOLDER, device="cuda", num_slots=48)
    for _ in range(2):
        engine.handle(LoadModel(options))
        assert isinstance(events[-1], LoadFailed)
        gc.collect()
    fails = False
    engine.handle(LoadModel(options))
    assert isinstance(events[-1], Loaded)


ORDERS = {function.__name__: function for function in (streams_first, streams_never, within_a_capture, load_fails)}

if __name__ == "__main__":
    _, expected = decode(DecodeStreams(_DEVICE))
    ORDERS[sys.argv[1]]()
    _, found = decode(DecodeStreams(_DEVICE))
    assert torch.equal(found, expected)
