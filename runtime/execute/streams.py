"""CUDA streams: the only file that creates them, and every wait between them says what it waits for.

The side streams are made by the driver as non-blocking streams of their own and wrapped. A stream of torch's pool may
be handed out twice, as the compute or the capture stream too, and then the side work is serial without a word.
"""

import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from runtime.errors import EngineError
from runtime.execute.overlap import OverlapLevel
from runtime.experts.branches import BranchName

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING, as of cudaStreamCreateWithFlags: no order with the default stream."""


class SideStream:
    """A non-blocking stream that no one else has. Given back by `close`, or when it is collected, for the next to have.

    A stream is never destroyed: torch's pinned memory remembers the streams that it was copied on, and uses them once
    more when it is freed, which may be long after its user closed them.
    """

    def __init__(self, device: torch.device) -> None:
        # The driver wants torch's context to be current on this thread.
        torch.cuda.current_stream(device).synchronize()
        spare = _spare.setdefault(device, [])
        self.stream = spare.pop() if spare else _new_stream(device)
        self._give_back = weakref.finalize(self, spare.append, self.stream)
        self._give_back.atexit = False

    def close(self) -> None:
        """Leave the stream to the next; what runs on it ends first. May be called again."""
        self.stream.synchronize()
        self._give_back()


_spare: dict[torch.device, list[torch.cuda.Stream]] = {}
"""Streams that nobody has, of the whole process."""


def _new_stream(device: torch.device) -> torch.cuda.Stream:
    handle = ctypes.c_void_p()
    status = ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING)
    if status:
        raise EngineError(f"The GPU gives no stream for overlap (CUDA error {status}); set --overlap off.")
    return torch.cuda.ExternalStream(handle.value or 0, device=device)


class DecodeStreams:
    """The compute stream of decode and a side stream for each branch; built once per engine, kept over rebuilds."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._compute = SideStream(device)
        self._sides: dict[BranchName, SideStream] = {name: SideStream(device) for name in ("shared",)}
        self._copies = SideStream(device)

    @property
    def compute(self) -> torch.cuda.Stream:
        """What decode runs on, eager or captured."""
        return self._compute.stream

    def side(self, branch: BranchName) -> torch.cuda.Stream:
        """The stream of a branch."""
        return self._sides[branch].stream

    def copy_lane(self) -> "PrefillCopies":
        """Prefill's copies, beside the compute stream."""
        return PrefillCopies(self._copies.stream, self.device)

    def _all(self) -> list[SideStream]:
        return [self._compute, *self._sides.values(), self._copies]

    def check_integrity(self) -> None:
        """Raise AssertionError if two of the streams are one."""
        handles = [stream.stream.cuda_stream for stream in self._all()]
        if len(set(handles)) != len(handles) or 0 in handles:
            raise AssertionError(f"streams alias: {handles}")

    def close(self) -> None:
        """Give the streams back."""
        for stream in self._all():
            stream.close()


class PrefillCopies:
    """Implements `CopyLane`: to be used on the compute stream, on which all products run."""

    def __init__(self, stream: torch.cuda.Stream, device: torch.device) -> None:
        self._stream, self._device = stream, device
        self._copied: list[torch.cuda.Event | None] = [None, None]
        self._computed: list[torch.cuda.Event | None] = [None, None]

    @contextmanager
    def copying(self, half: int) -> Iterator[None]:
        computed = self._computed[half]
        if computed is not None:
            # The copies wait for the products of what this half held before.
            self._stream.wait_event(computed)
        with torch.cuda.stream(self._stream):
            yield
            event = self._copied[half] = torch.cuda.Event()
            event.record(self._stream)

    def wait(self, half: int) -> None:
        copied = self._copied[half]
        assert copied is not None, "nothing was copied into this half"
        # The products wait for the records they read.
        torch.cuda.current_stream(self._device).wait_event(copied)

    def computed(self, half: int) -> None:
        event = self._computed[half] = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))

    def drain(self) -> None:
        self._stream.synchronize()


class StreamBranches:
    """Implements `Branches` over `DecodeStreams`, at one level; to be used on the compute stream."""

    def __init__(self, streams: DecodeStreams, level: OverlapLevel) -> None:
        self.level = level
        self._streams = streams
        self._ends: dict[BranchName, torch.cuda.Event] = {}

    @property
    def is_by_arrival(self) -> bool:
        return self.level == "resident"

    def fork(self, branch: BranchName) -> AbstractContextManager[None]:
        if self.level == "off":
            return nullcontext()
        begin = torch.cuda.Event()
        begin.record(torch.cuda.current_stream(self._streams.device))
        return self._run_from(begin, branch)

    @contextmanager
    def _run_from(self, begin: torch.cuda.Event, branch: BranchName) -> Iterator[None]:
        side = self._streams.side(branch)
        # The branch waits for its inputs: all that the compute stream was given before the fork.
        side.wait_event(begin)
        with torch.cuda.stream(side):
            yield
            self._ends[branch] = torch.cuda.Event()
            self._ends[branch].record(side)

    def join(self, branch: BranchName) -> None:
        if self.level != "off":
            # The compute stream waits for the branch's outputs.
            torch.cuda.current_stream(self._streams.device).wait_event(self._ends.pop(branch))

    def call_host(self, call: Callable[[], None]) -> None:
        assert self.level == "off", "a branch is open that the call would have to wait for"
        call()
