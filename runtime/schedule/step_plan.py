"""What one step of the engine computes, in plain ids."""

from dataclasses import dataclass

from runtime.cache.sequence_cache import CacheMoves


@dataclass(frozen=True)
class PlannedSegment:
    """Consecutive tokens of one sequence. `page_ids` cover positions 0 to start+len(token_ids)-1.

    `logit_offsets` are the tokens (0 = the segment's first) whose logits the step returns. The state after the segment
    is copied to `save_row`.
    """

    sequence_id: str
    token_ids: tuple[int, ...]
    start: int
    page_ids: tuple[int, ...]
    state_row: int
    logit_offsets: tuple[int, ...]
    save_row: int | None = None
    is_side_call: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True)
class StepPlan:
    """One forward pass: `moves` first, then all segments. A decode step has one token per segment.

    A chunk that reaches over a save point has one segment up to it and another, of the same sequence, after it.
    """

    segments: tuple[PlannedSegment, ...]
    moves: tuple[CacheMoves, ...]
    is_decode: bool
    has_chat: bool = False
    """A chat runs, in this step or beside it."""
    has_side_call: bool = False
    """A side call runs, in this step or beside it."""
    holds_up_chat: bool = False
    """A chat that decodes has no token in this step."""

    @property
    def num_tokens(self) -> int:
        return sum(len(segment.token_ids) for segment in self.segments)
