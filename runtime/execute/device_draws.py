"""Draws a decode step's tokens where its logits are, and feeds them to the next step without the host.

Owns what that takes on the device: the last token of every state row, the tokens that were generated in it, and the
outcome of a step, which is copied to the host behind it. A row's memory is its sequence's from the first step whose
token the host gives; what an earlier sequence left is overwritten then.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from runtime.execute.decode_inputs import DrawInputs
from runtime.execute.sampler import DrawnToken, RowDraw
from runtime.kernels.ops import select_ops
from runtime.layers.step import DecodeRows
from runtime.schedule.request import UNKNOWN_ID
from runtime.schedule.step_plan import StepPlan

NUM_COUNTERS = 3
_NUM_OUTCOMES = 3
"""On the host: of the step that runs, the one that is read, and one to spare."""


class LaunchedStep:
    """A decode step on its way: what it will have drawn and counted."""

    def __init__(
        self,
        outcome: Tensor,
        num_rows: int,
        arrived: torch.cuda.Event | None,
        note_counters: Callable[[Sequence[int]], None],
    ) -> None:
        self._outcome, self._num_rows, self._arrived = outcome, num_rows, arrived
        self._note_counters = note_counters

    def wait(self) -> list[DrawnToken]:
        """The rows' tokens; the slots' counters are noted. Waits for this step, not for what follows. Once."""
        if self._arrived is not None:
            self._arrived.synchronize()
        counters, rows = self._outcome[:NUM_COUNTERS], self._outcome[NUM_COUNTERS:].view(2, -1)[:, : self._num_rows]
        self._note_counters(counters.tolist())
        return list(map(DrawnToken, rows[0].tolist(), rows[1].view(torch.float64).tolist()))


class DeviceDraws:
    """Memory for `num_state_rows` sequences, of which up to `max_rows` decode in one step."""

    def __init__(self, num_state_rows: int, vocab_size: int, max_rows: int, device: torch.device) -> None:
        self._sample_rows = select_ops(device).sample_rows
        self._device = device
        self._next_ids = torch.zeros(num_state_rows, dtype=torch.int64, device=device)
        self._seen = torch.zeros(num_state_rows, vocab_size, dtype=torch.uint8, device=device)
        """Tokens that each row's sequence generated; read for rows with penalties alone."""
        self._outcome = torch.zeros(NUM_COUNTERS + 2 * max_rows, dtype=torch.int64, device=device)
        """Counters, token ids, and the bits of log-probabilities in fp64."""
        is_cuda = device.type == "cuda"
        self._on_host = [
            torch.zeros_like(self._outcome, device="cpu", pin_memory=is_cuda) for _ in range(_NUM_OUTCOMES)
        ]
        self._turn = 0

    @property
    def num_bytes(self) -> int:
        """Bytes on the device."""
        return self._seen.nbytes + self._next_ids.nbytes + self._outcome.nbytes

    def begin(self, plan: StepPlan, draws: Sequence[RowDraw]) -> None:
        """Before a step: rows whose token the host gives forget whose they were. On the current stream."""
        for segment, draw in zip(plan.segments, draws, strict=True):
            if segment.token_ids[0] != UNKNOWN_ID and draw.generated:
                row = self._seen[segment.state_row].zero_()
                ids = torch.tensor(list(draw.generated), dtype=torch.int64)
                if row.is_cuda:
                    # Memory that is not pinned would make the host wait.
                    ids = ids.pin_memory().to(self._device, non_blocking=True)
                row.index_fill_(0, ids, 1)

    def fed(self, rows: DecodeRows) -> DecodeRows:
        """Launched first in a step: tokens that the host does not know are those that the last step drew."""
        drawn = self._next_ids.index_select(0, rows.state_rows)
        return replace(rows, token_ids=torch.where(rows.token_ids == UNKNOWN_ID, drawn, rows.token_ids))

    def draw(self, logits: Tensor, draws: DrawInputs, state_rows: Tensor, counters: Tensor) -> None:
        """Launched last: logits fp32 [R, vocab]; counters int64 [3] are those of the slots."""
        ids, logprobs = self._sample_rows(logits, draws.choices, self._seen, state_rows, draws.uniforms)
        self._next_ids.index_copy_(0, state_rows, ids)
        self._outcome[:NUM_COUNTERS].copy_(counters)
        rows = self._outcome[NUM_COUNTERS:].view(2, -1)[:, : len(ids)]
        rows[0].copy_(ids)
        rows[1].copy_(logprobs.double().view(torch.int64))

    def read(self, num_rows: int, note_counters: Callable[[Sequence[int]], None]) -> LaunchedStep:
        """Have the outcome of the step that was launched copied to the host, behind it. On the current stream."""
        self._turn = (self._turn + 1) % _NUM_OUTCOMES
        outcome = self._on_host[self._turn].copy_(self._outcome, non_blocking=True)
        arrived: torch.cuda.Event | None = None
        if outcome.is_pinned():
            arrived = torch.cuda.Event()
            arrived.record()
        return LaunchedStep(outcome, num_rows, arrived, note_counters)
