"""CUDA streams: the only file that creates them, and every wait between them says what it waits for.

The side streams are made by the driver as non-blocking streams of their own and wrapped. A stream of torch's pool may
be handed out twice, as the compute or the capture stream too, and then the side work is serial without a word.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from runtime.errors import EngineError
from runtime.execute.overlap import OverlapLevel
from runtime.experts.branches import BranchName

_NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING, as of cudaStreamCreateWithFlags: no order with the default stream."""


class SideStream:
    """A non-blocking stream that no one else gets. Lives until `close`: an external stream is not torch's to free."""

    def __init__(self, device: torch.device) -> None:
        # The driver wants torch's context to be current on this thread.
        torch.cuda.current_stream(device).synchronize()
        self._driver = ctypes.CDLL("libcuda.so.1")
        handle = ctypes.c_void_p()
        status = self._driver.cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING)
        if status:
            raise EngineError(f"The GPU gives no stream for overlap (CUDA error {status}); set --overlap off.")
        self._handle = handle
        self.stream = torch.cuda.ExternalStream(handle.value or 0, device=device)

    def close(self) -> None:
        """Destroy the stream; what runs on it ends first."""
        self.stream.synchronize()
        self._driver.cuStreamDestroy_v2(self._handle)


class DecodeStreams:
    """The compute stream of decode and a side stream for each branch; built once per engine, kept over rebuilds."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._compute = SideStream(device)
        self._sides: dict[BranchName, SideStream] = {name: SideStream(device) for name in ("shared",)}

    @property
    def compute(self) -> torch.cuda.Stream:
        """What decode runs on, eager or captured."""
        return self._compute.stream

    def side(self, branch: BranchName) -> torch.cuda.Stream:
        """The stream of a branch."""
        return self._sides[branch].stream

    def check_integrity(self) -> None:
        """Raise AssertionError if two of the streams are one."""
        handles = [stream.stream.cuda_stream for stream in (self._compute, *self._sides.values())]
        if len(set(handles)) != len(handles) or 0 in handles:
            raise AssertionError(f"streams alias: {handles}")

    def close(self) -> None:
        """Give the streams back."""
        for stream in (self._compute, *self._sides.values()):
            stream.close()


class StreamBranches:
    """Implements `Branches` over `DecodeStreams`, at one level; to be used on the compute stream."""

    def __init__(self, streams: DecodeStreams, level: OverlapLevel) -> None:
        self.level = level
        self._streams = streams
        self._ends: dict[BranchName, torch.cuda.Event] = {}

    @property
    def is_by_arrival(self) -> bool:
        return self.level == "resident"

    @contextmanager
    def fork(self, branch: BranchName) -> Iterator[None]:
        if self.level == "off":
            yield
            return
        side, begin = self._streams.side(branch), torch.cuda.Event()
        begin.record(torch.cuda.current_stream(self._streams.device))
        # The branch waits for its inputs: all that the compute stream was given so far.
        side.wait_event(begin)
        with torch.cuda.stream(side):
            yield
            self._ends[branch] = torch.cuda.Event()
            self._ends[branch].record(side)

    def join(self, branch: BranchName) -> None:
        if self.level != "off":
            # The compute stream waits for the branch's outputs.
            torch.cuda.current_stream(self._streams.device).wait_event(self._ends.pop(branch))
