"""Runs one planned step: cache moves, then the decoder over all segments. Decides nothing."""

import torch

from runtime.cache.page_pool import PagePool
from runtime.cache.sequence_cache import CacheMoves
from runtime.cache.state_pool import StatePool
from runtime.execute.step_inputs import build_step_inputs
from runtime.execute.threads import ThreadPlan
from runtime.experts.routed import SlotExperts
from runtime.layers.decoder import Decoder
from runtime.schedule.step_plan import StepPlan


class Forward:
    """The decoder with the memory it runs over."""

    def __init__(
        self,
        decoder: Decoder,
        pages: PagePool,
        states: StatePool,
        experts: SlotExperts,
        device: torch.device,
        threads: ThreadPlan,
    ) -> None:
        self._decoder = decoder
        self._pages = pages
        self._states = states
        self._experts = experts
        self._device = device
        self._threads = threads

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> torch.Tensor:
        """Logits fp32 [rows, vocab] of the tokens the plan wants, in its order."""
        self._use_threads(self._threads.of_step(plan.num_tokens))
        for moves in plan.moves:
            self._move(moves)
        if plan.is_decode:
            self._experts.begin_step()
        step = build_step_inputs(plan, self._device)
        return self._decoder.forward(step, self._pages, self._states, self._experts)

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
