"""Decode steps of 1 to `max_rows` rows: launched as they are, or captured once per number of rows and replayed.

Where experts are read from the disk a step is captured in pieces, between which the host brings them.

A step ends with the draw of its tokens, which the next one takes from the device: it can be launched before the host
has read any of them.

All graphs share one memory pool, since one runs at a time. They hold addresses: whatever moves (slots resized, another
overlap level, a trace that begins) is followed by a new capture. On a CPU the step is a plain call over the same
inputs.
"""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.execute.cut_graph import CutGraph
from runtime.execute.decode_inputs import DecodeInputs
from runtime.execute.device_draws import DeviceDraws, LaunchedStep
from runtime.execute.overlap import OverlapLevel
from runtime.execute.sampler import RowDraw
from runtime.execute.streams import DecodeStreams, StreamBranches
from runtime.experts.branches import Branches, SerialBranches
from runtime.experts.device_routed import DeviceExperts
from runtime.layers.decoder import Decoder
from runtime.schedule.step_plan import StepPlan

_WARM_UP_STEPS = 2
"""Before a capture: kernels are compiled and loaded in the first, and workspaces exist."""


@contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage may hold graphs and pinned memory, which can't be freed while a graph is captured."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class DecodeStep:
    """The step of one number of rows. `run` launches it and returns where its logits fp32 [rows, vocab] will be."""

    def __init__(self, launch: Callable[[Branches], Tensor], branches: Branches) -> None:
        self._launch, self._branches = launch, branches
        self._graph: CutGraph | None = None

    def capture(self, pool: Any, stream: torch.cuda.Stream) -> None:
        """Replay from now on. The step must have run on `stream` before."""
        graph = CutGraph(pool, stream)
        with _no_collection():
            graph.capture(self._launch, self._branches)
        self._graph = graph

    def run(self) -> Tensor:
        return self._launch(self._branches) if self._graph is None else self._graph.replay()


class DecodeSteps:
    """The decode steps of one model. `level` is the overlap that they are launched with."""

    def __init__(
        self,
        decoder: Decoder,
        pages: PagePool,
        states: StatePool,
        experts: DeviceExperts,
        inputs: DecodeInputs,
        streams: DecodeStreams | None,
        captures: bool = True,
    ) -> None:
        self._decoder, self._pages, self._states, self._experts = decoder, pages, states, experts
        self._inputs, self._streams, self._captures = inputs, streams, captures
        self._draws = DeviceDraws(states.num_rows, decoder.spec.vocab_size, inputs.max_rows, states.last_ids.device)
        self.level: OverlapLevel = "off"
        self._steps: dict[int, DecodeStep] = {}
        self._graph_pool: Any = None

    def build(self, level: OverlapLevel | None = None, warms_up: bool = True, most_rows: int | None = None) -> None:
        """Launch every step once and capture it, at another level if one is given.

        `warms_up` runs the steps on pages and rows that no sequence may hold yet; afterwards slots, policy and counters
        are as new. Without it, kernels must have run before: then nothing is computed and nothing changes.
        `most_rows` builds fewer steps.
        """
        self._steps.clear()
        self._graph_pool = torch.cuda.graph_pool_handle() if self._streams is not None and self._captures else None
        self.level = level or self.level
        assert self._streams is not None or self.level == "off", "overlap needs streams"
        branches: Branches = SerialBranches()
        if self._streams is not None:
            branches = StreamBranches(self._streams, self.level)
        with self._on_compute_stream():
            self._steps = {
                num_rows: self._build_step(num_rows, branches, warms_up)
                # The largest first: the others fit in its memory.
                for num_rows in range(most_rows or self._inputs.max_rows, 0, -1)
            }
        if warms_up:
            self._experts.cache.reset()

    def record_routing(self, is_recorded: bool) -> None:
        """Whether steps leave what they route for a trace; captured anew, since that takes launches of its own."""
        if is_recorded:
            self._experts.keep_routing(self._inputs.max_rows)
        else:
            self._experts.routing = None
        self.build(warms_up=False)

    @property
    def reason_to_wait(self) -> str:
        """Why a step can't be launched before the last one was read; empty where it can."""
        if self._decoder.fetches_ngram_rows:
            return "the n-gram table is mapped from its file, and its rows are read for a token that the host knows"
        if not self._experts.store.records_stay:
            return "experts are read from the disk, for which the host waits in every layer"
        if self._experts.recorder is not None:
            return "a trace is recorded, for which every step's routing is read"
        return ""

    def begin(self, plan: StepPlan, draws: Sequence[RowDraw]) -> LaunchedStep:
        """Launch a planned decode step and return at once: `draws` say how each row's next token is drawn.

        A row whose token is `UNKNOWN_ID` gets the one that the last step with its state row drew.
        """
        assert not self.reason_to_wait, self.reason_to_wait
        num_rows = len(plan.segments)
        with self._on_compute_stream():
            self._inputs.fill(plan, draws)
            self._draws.begin(plan, draws)
            self.launch(num_rows)
            return self._draws.read(num_rows, self._experts.cache.note_step)

    def run(self, plan: StepPlan) -> Tensor:
        """Logits fp32 [rows, vocab] of a planned decode step; they stay valid until the next step. Waits for it."""
        with self._on_compute_stream():
            self._inputs.fill(plan)
            self._decoder.fetch_ngram_rows(self._inputs.rows(len(plan.segments)), self._states)
            logits = self.launch(len(plan.segments))
            self._experts.ended_step(len(plan.segments))
        return logits

    def launch(self, num_rows: int) -> Tensor:
        """Run the step over the inputs as they are, on the current stream, which must be the compute stream."""
        return self._steps[num_rows].run()

    def _build_step(self, num_rows: int, branches: Branches, warms_up: bool) -> DecodeStep:
        # Steps that held their owner would leave a model's memory to the collector, whenever that comes.
        owner = weakref.ref(self)

        def launch(branches: Branches) -> Tensor:
            steps = owner()
            assert steps is not None
            return steps._launch(num_rows, branches)

        step = DecodeStep(launch, branches)
        if warms_up:
            self._inputs.fill_idle(num_rows)
            for _ in range(_WARM_UP_STEPS):
                step.run()
        if self._streams is not None and self._graph_pool is not None:
            self._streams.compute.synchronize()
            step.capture(self._graph_pool, self._streams.compute)
        return step

    @torch.inference_mode()
    def _launch(self, num_rows: int, branches: Branches) -> Tensor:
        self._experts.begin_step()
        rows = self._draws.fed(self._inputs.rows(num_rows))
        logits = self._decoder.decode(rows, self._pages, self._states, self._experts, branches)
        self._draws.draw(logits, self._inputs.draws(num_rows), rows.state_rows, self._experts.cache.state.counters)
        return logits

    def _on_compute_stream(self) -> "torch.cuda.StreamContext | nullcontext[None]":
        return nullcontext() if self._streams is None else torch.cuda.stream(self._streams.compute)
