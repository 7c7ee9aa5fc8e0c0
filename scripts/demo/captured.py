"""Owns CUDA graphs of training: a step has thousands of short launches, and a card waits for the host to make them."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
WARM_UPS = 3


class Captured(Generic[T]):
    """A function whose launches are recorded at its fourth call and replayed from then on.

    Until then it runs as it is, so that whatever compiles, tunes or allocates by need is through with it. It must
    read and write the same tensors at each call; a replay leaves its results in those of the recorded call.
    """

    def __init__(self, run: Callable[[], T]) -> None:
        self.run, self.calls = run, 0
        self.recorded: tuple[torch.cuda.CUDAGraph, T] | None = None

    def __call__(self) -> T:
        self.calls += 1
        if self.calls <= WARM_UPS:
            return self.beside()
        if self.recorded is None:
            self.recorded = self.record()
        graph, result = self.recorded
        graph.replay()
        return result

    def record(self) -> tuple[torch.cuda.CUDAGraph, T]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL asks for its events meanwhile
            return graph, self.run()

    def beside(self) -> T:
        """As it is, on a stream of its own, as capture wants it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self.run()
        torch.cuda.current_stream().wait_stream(stream)
        return result
