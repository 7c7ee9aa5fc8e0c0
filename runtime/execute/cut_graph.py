"""A decode step captured in pieces: wherever the launches need the host in between, one graph ends and the next begins.

Owns the graphs and the order in which graphs and host take turns. A step that never asks is one graph.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from runtime.experts.branches import Branches, BranchName


class CutGraph:
    """Graphs of one step, in `pool`, on `stream`. Replayed on the stream that is current then."""

    def __init__(self, pool: Any, stream: torch.cuda.Stream) -> None:
        self._pool, self._stream = pool, stream
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._calls: list[Callable[[], None]] = []
        """Each between the graph of its number and the next."""
        self._result: Tensor | None = None

    @property
    def num_pieces(self) -> int:
        return len(self._graphs)

    def capture(self, launch: Callable[[Branches], Tensor], branches: Branches) -> None:
        """Capture what `launch` launches. It must have run on the stream before, and nothing may run beside."""
        torch.cuda.synchronize()
        # What is held by nobody goes back first: a capture can't free memory.
        torch.cuda.empty_cache()
        with torch.cuda.stream(self._stream):
            self._begin()
            try:
                self._result = launch(_CutBranches(branches, self))
            finally:
                self._graphs[-1].capture_end()

    def cut(self, call: Callable[[], None]) -> None:
        """End the graph that is captured, have the host called after it, and begin the next."""
        self._graphs[-1].capture_end()
        self._calls.append(call)
        self._begin()

    def replay(self) -> Tensor:
        """Run the step; waits where the host's calls do. Returns where the result will be."""
        assert self._result is not None
        for number, graph in enumerate(self._graphs):
            graph.replay()
            if number < len(self._calls):
                self._calls[number]()
        return self._result

    def _begin(self) -> None:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool)
        self._graphs.append(graph)


class _CutBranches:
    """The branches that are captured, but for the host's calls: they are kept for every replay."""

    def __init__(self, branches: Branches, graph: CutGraph) -> None:
        self._branches, self._graph = branches, graph

    @property
    def is_by_arrival(self) -> bool:
        return self._branches.is_by_arrival

    def fork(self, branch: BranchName) -> Any:
        return self._branches.fork(branch)

    def join(self, branch: BranchName) -> None:
        self._branches.join(branch)

    def call_host(self, call: Callable[[], None]) -> None:
        self._graph.cut(call)
