"""The inputs of a decode step at fixed addresses, and the only file that fills them, from staging memory.

One block of int64 per step: token ids, positions, state rows, what the sampler needs, then the page table. It goes to
the device in one copy on the compute stream. Two staging blocks take turns, each reused only once its copy has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.execute.sampler import RowDraw
from runtime.kernels.torch_ops.sampler import NUM_CHOICES, pack_options
from runtime.layers.step import DecodeRows
from runtime.options import SamplingOptions
from runtime.schedule.step_plan import StepPlan
from runtime.spec import PAGE_TOKENS

_NUM_STAGING = 2


@dataclass(frozen=True)
class DrawInputs:
    """How the rows' next tokens are drawn: choices fp64 [R, 6] of `pack_options`, uniforms fp64 [R]."""

    choices: Tensor
    uniforms: Tensor


class DecodeInputs:
    """Memory for up to `max_rows` rows of sequences up to `context_tokens` long."""

    def __init__(self, max_rows: int, context_tokens: int, device: torch.device) -> None:
        self.max_rows = max_rows
        self._num_pages = -(-context_tokens // PAGE_TOKENS)
        self._is_cuda = device.type == "cuda"
        width = max_rows * (4 + NUM_CHOICES + self._num_pages)
        self._block = torch.zeros(width, dtype=torch.int64, device=device)
        self._staging = [torch.zeros(width, dtype=torch.int64, pin_memory=self._is_cuda) for _ in range(_NUM_STAGING)]
        self._copied: list[torch.cuda.Event | None] = [None] * _NUM_STAGING
        self._turn = 0
        self._greedy = RowDraw(pack_options([SamplingOptions()])[0], 0.0)
        for block in (self._block, *self._staging):
            self._draw_views(block, max_rows).choices.copy_(self._greedy.choice)

    def rows(self, num_rows: int) -> DecodeRows:
        """The first rows, as a step of so many reads them: views of the block."""
        return self._views(self._block, num_rows)

    def draws(self, num_rows: int) -> DrawInputs:
        """The same of the sampler's inputs."""
        return self._draw_views(self._block, num_rows)

    def fill(self, plan: StepPlan, draws: Sequence[RowDraw] = ()) -> None:
        """Put a planned decode step's ids where the step reads them, on the current stream.

        Without `draws` the step draws greedily, and nobody needs what it draws.
        """
        num_rows = len(plan.segments)
        assert num_rows <= self.max_rows, f"{num_rows} rows planned, inputs hold {self.max_rows}"
        self._turn = (self._turn + 1) % _NUM_STAGING
        copied = self._copied[self._turn]
        if copied is not None:
            # The block's last copy may still be reading it.
            copied.synchronize()
        views = self._views(self._staging[self._turn], num_rows)
        for row, segment in enumerate(plan.segments):
            assert len(segment.token_ids) == 1, "a decode step has one token per segment"
            assert segment.save_row is None, "a decode step saves no state"
            views.token_ids[row] = segment.token_ids[0]
            views.positions[row] = segment.start
            views.state_rows[row] = segment.state_row
            views.page_table[row, : len(segment.page_ids)] = torch.tensor(segment.page_ids, dtype=torch.int64)
        drawn = self._draw_views(self._staging[self._turn], num_rows)
        for row, draw in enumerate(draws or [self._greedy] * num_rows):
            drawn.choices[row] = draw.choice
            drawn.uniforms[row] = draw.number
        self._block.copy_(self._staging[self._turn], non_blocking=True)
        if self._is_cuda:
            event = self._copied[self._turn] = torch.cuda.Event()
            event.record()

    def fill_idle(self, num_rows: int) -> None:
        """Rows that touch nothing in use before the first request: token 0 at position 0 of rows and pages 0, 1, …"""
        views = self._views(self._block, num_rows)
        for part in (views.token_ids, views.positions):
            part.zero_()
        numbers = torch.arange(num_rows, device=self._block.device)
        views.state_rows.copy_(numbers)
        views.page_table.copy_(numbers.unsqueeze(1))

    def fill_at(self, num_rows: int, position: int) -> None:
        """Rows of `position` tokens in pages of their own, row r in the r-th run of pages; token 0 comes next."""
        views = self._views(self._block, num_rows)
        numbers = torch.arange(num_rows, device=self._block.device)
        views.token_ids.zero_()
        views.positions.fill_(position)
        views.state_rows.copy_(numbers)
        pages = torch.arange(self._num_pages, device=self._block.device)
        views.page_table.copy_(numbers.unsqueeze(1) * self._num_pages + pages)

    def _views(self, block: Tensor, num_rows: int) -> DecodeRows:
        """Each part has room for `max_rows`, so that a row lies at one address whatever the number of rows."""
        token_ids, positions, state_rows, _, _, pages = self._parts(block)
        table = pages.view(self.max_rows, self._num_pages)
        return DecodeRows(token_ids[:num_rows], positions[:num_rows], table[:num_rows], state_rows[:num_rows])

    def _draw_views(self, block: Tensor, num_rows: int) -> DrawInputs:
        _, _, _, uniforms, choices, _ = (part.view(torch.float64) for part in self._parts(block))
        return DrawInputs(choices.view(self.max_rows, NUM_CHOICES)[:num_rows], uniforms[:num_rows])

    def _parts(self, block: Tensor) -> tuple[Tensor, ...]:
        size = self.max_rows
        return block.split((size, size, size, size, size * NUM_CHOICES, size * self._num_pages))
