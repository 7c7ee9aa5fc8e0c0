"""Runs one planned step: cache moves, then the decoder over all segments. Decides nothing."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import torch

from runtime.cache.page_pool import PagePool
from runtime.cache.sequence_cache import CacheMoves
from runtime.cache.state_pool import StatePool
from runtime.execute.decode_graph import DecodeSteps
from runtime.execute.device_draws import LaunchedStep
from runtime.execute.sampler import RowDraw
from runtime.execute.step_inputs import build_step_inputs
from runtime.execute.streams import DecodeStreams
from runtime.execute.threads import ThreadPlan
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.routed import SlotExperts
from runtime.layers.decoder import Decoder
from runtime.layers.step import StepInputs, StepInterruptedError
from runtime.schedule.step_plan import StepPlan

_logger = logging.getLogger("hotslot.engine")


class Forward:
    """The decoder with the memory it runs over."""

    def __init__(
        self,
        decoder: Decoder,
        pages: PagePool,
        states: StatePool,
        experts: SlotExperts | DeviceExperts,
        device: torch.device,
        threads: ThreadPlan,
        decode_steps: DecodeSteps | None = None,
        streams: DecodeStreams | None = None,
    ) -> None:
        self._decoder = decoder
        self._pages = pages
        self._states = states
        self._experts = experts
        self._device = device
        self._threads = threads
        self._decode_steps = decode_steps
        self._streams = streams

    @torch.inference_mode()
    def run(self, plan: StepPlan, is_wanted: Callable[[], bool] = lambda: True) -> torch.Tensor:
        """Logits fp32 [rows, vocab] of the tokens the plan wants, in its order. Waits for the device.

        A step of several chunks is given up where it is not wanted any more, with its moves made and its sequences as
        they were before: StepInterruptedError.
        """
        self._use_threads(self._threads.of_step(plan.num_tokens))
        # Everything runs on decode's compute stream: moves, chunks and steps follow each other.
        with self.between_steps():
            return self._run(plan, is_wanted)

    @property
    def reason_to_wait(self) -> str:
        """Why decode steps can't be launched one ahead; empty where they can."""
        if self._decode_steps is None:
            return "tokens are drawn on the host"
        return self._decode_steps.reason_to_wait

    @torch.inference_mode()
    def launch(self, plan: StepPlan, draws: Sequence[RowDraw]) -> LaunchedStep:
        """Launch a planned decode step, which draws each row's next token itself. Doesn't wait for the device."""
        assert self._decode_steps is not None, self.reason_to_wait
        self._use_threads(self._threads.of_step(plan.num_tokens))
        with nullcontext() if self._streams is None else torch.cuda.stream(self._streams.compute):
            for moves in plan.moves:
                self._move(moves)
            return self._decode_steps.begin(plan, draws)

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """What is done inside follows the steps before and is done before those after it. Waits for the device."""
        if self._streams is None:
            yield
            return
        with torch.cuda.stream(self._streams.compute):
            yield
            self._streams.compute.synchronize()

    def _run(self, plan: StepPlan, is_wanted: Callable[[], bool]) -> torch.Tensor:
        for moves in plan.moves:
            self._move(moves)
        if plan.is_decode and self._decode_steps is not None:
            return self._decode_steps.run(plan)
        if plan.is_decode:
            self._experts.begin_step()
        is_long = len(plan.chunks) > 1
        if not is_long and self._decode_steps is None:
            return self._run_chunk(plan)
        rows = {segment.state_row for segment in plan.segments}
        before = {row: self._states.snapshot(row) for row in rows}
        run = partial(self._run_chunks, before=before, is_wanted=is_wanted) if is_long else self._run_chunk
        try:
            return run(plan)
        except torch.OutOfMemoryError:
            # A decode step allocates nothing, so these are chunks, half of whose layers may have moved state on.
            if self._decode_steps is None or not self._gives_slots_back():
                raise
        self._restore(before)
        return run(plan)

    def _restore(self, states: dict[int, tuple[torch.Tensor, ...]]) -> None:
        for row, state in states.items():
            self._states.restore(row, state)

    def _run_chunk(self, plan: StepPlan) -> torch.Tensor:
        step = build_step_inputs(plan, self._device)
        return self._decoder.forward(step, self._pages, self._states, self._experts)

    def _run_chunks(
        self, plan: StepPlan, before: dict[int, tuple[torch.Tensor, ...]], is_wanted: Callable[[], bool]
    ) -> torch.Tensor:
        """A long step. Each chunk has the threads, and so the bits, that it has in a step of its own."""

        def begin(step: StepInputs) -> None:
            if not is_wanted():
                raise StepInterruptedError
            self._use_threads(self._threads.of_step(len(step.token_ids)))

        steps = tuple(build_step_inputs(chunk, self._device) for chunk in plan.chunks)
        try:
            return self._decoder.forward_chunks(steps, self._pages, self._states, self._experts, begin)
        except StepInterruptedError:
            self._restore(before)
            raise

    def _gives_slots_back(self) -> bool:
        """Fewer expert slots, empty ones, and decode steps that know them; whether there were any to give."""
        assert self._decode_steps is not None
        assert isinstance(self._experts, DeviceExperts)
        num_before, num_slots = self._experts.cache.num_slots, self._experts.fewer_slots()
        if num_slots == num_before:
            return False
        self._experts.resize(num_slots)
        self._decode_steps.build(warms_up=False)
        _logger.warning("out of memory: %d of %d expert slots given back", num_before - num_slots, num_before)
        return True

    @staticmethod
    def _use_threads(num_threads: int) -> None:
        if torch.get_num_threads() != num_threads:
            torch.set_num_threads(num_threads)

    def _move(self, moves: CacheMoves) -> None:
        for row in moves.reset_rows:
            self._states.reset(row)
        for source, target in moves.row_copies:
            self._states.copy(source, target)
        for source, target in moves.page_copies:
            self._pages.copy_page(source, target)
