"""Times calls by the device's own clock: all in one graph, replayed; medians. Without a GPU by the host's clock."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

Call = Callable[[], object]


class Timer:
    """Microseconds per call, as a median over rounds."""

    def __init__(self, device: torch.device, num_rounds: int) -> None:
        self.device, self._num_rounds = device, num_rounds

    def in_graph(self, calls: Sequence[Call], prepare: Call = lambda: None) -> float:
        """The calls one after another in one graph; `prepare` runs before each replay, untimed."""
        replay = self.capture(calls, prepare)
        return self._median(replay, prepare) / len(calls)

    def eager(self, call: Call, num_calls: int = 1) -> float:
        """`call`, which enqueues `num_calls` pieces of work, by events around it."""
        call()
        return self._median(call, lambda: None) / num_calls

    def capture(self, calls: Sequence[Call], prepare: Call = lambda: None) -> Call:
        """A call that replays them."""

        def run_all() -> None:
            for call in calls:
                call()

        prepare()
        # Compiles what is compiled at first use.
        run_all()
        if self.device.type != "cuda":
            return run_all
        torch.cuda.synchronize()
        prepare()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run_all()
        return graph.replay

    def _median(self, run: Call, prepare: Call) -> float:
        return statistics.median(self._once(run, prepare) for _ in range(self._num_rounds))

    def _once(self, run: Call, prepare: Call) -> float:
        prepare()
        if self.device.type != "cuda":
            start = time.perf_counter()
            run()
            return (time.perf_counter() - start) * 1e6
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3


def kernel_medians(replay: Call, prepare: Call) -> dict[str, float]:
    """Median microseconds of each kernel of a replay, by name, from a trace of the device."""
    prepare()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        replay()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times.setdefault(event.name, []).append(event.device_time)
    return {name: statistics.median(us) for name, us in times.items()}
