"""What the engine works on: a sequence, what to do with its logits, and how it tells that it is over."""

from typing import Protocol

import torch

from runtime.protocol import EngineStats, Event
from runtime.schedule.request import Sequence
from runtime.schedule.step_plan import PlannedSegment


class Work(Protocol):
    """One accepted request. The engine sends exactly one of `finished`, `cancelled` and a `Failed`, last."""

    sequence: Sequence

    @property
    def is_over(self) -> bool:
        """Nothing more is wanted of the model."""
        ...

    def started(self) -> list[Event]:
        """Events of the moment its first step is planned."""
        ...

    def take(self, segment: PlannedSegment, logits: torch.Tensor, step_s: float, now_s: float) -> list[Event]:
        """Events of one step that computed `segment`; `logits` fp32 [rows, vocab] are the rows it wanted."""
        ...

    def finished(self, stats: EngineStats) -> Event: ...

    def cancelled(self, stats: EngineStats) -> Event: ...

    def discard(self) -> None:
        """It ended without `finished`: leave nothing half-made behind."""
        ...
