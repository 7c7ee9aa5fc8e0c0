"""What one step of the engine computes, in plain ids."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from runtime.cache.sequence_cache import CacheMoves
from runtime.spec import PAGE_TOKENS


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

    def part(self, begin: int, end: int) -> "PlannedSegment":
        """Its tokens begin..end-1, 0 being its first."""
        is_last = end == len(self.token_ids)
        return replace(
            self,
            token_ids=self.token_ids[begin:end],
            start=self.start + begin,
            page_ids=self.page_ids[: -(-(self.start + end) // PAGE_TOKENS)],
            logit_offsets=tuple(offset - begin for offset in self.logit_offsets if begin <= offset < end),
            save_row=self.save_row if is_last else None,
        )


@dataclass(frozen=True)
class StepPlan:
    """One forward pass: `moves` first, then all segments. A decode step has one token per segment.

    A chunk that reaches over a save point has one segment up to it and another, of the same sequence, after it. A long
    step has several chunks, which a layer computes one after the other.
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
    chunk_tokens: int | None = None
    """Tokens of one chunk; None: all of them are one."""

    @property
    def num_tokens(self) -> int:
        return sum(len(segment.token_ids) for segment in self.segments)

    @property
    def chunks(self) -> "tuple[StepPlan, ...]":
        """The step chunk by chunk; the first has its moves."""
        if self.chunk_tokens is None or self.num_tokens <= self.chunk_tokens:
            return (self,)
        chunks: list[list[PlannedSegment]] = []
        num_left = 0
        for segment in self.segments:
            for begin, end in _spans(len(segment.token_ids), num_left, self.chunk_tokens):
                if not num_left:
                    chunks.append([])
                    num_left = self.chunk_tokens
                chunks[-1].append(segment.part(begin, end))
                num_left -= end - begin
        plans = [replace(self, segments=tuple(segments), moves=()) for segments in chunks]
        return (replace(plans[0], moves=self.moves), *plans[1:])


def _spans(length: int, first_tokens: int, most_tokens: int) -> Iterator[tuple[int, int]]:
    """0..length-1 in pieces of `most_tokens`, the first of at most `first_tokens` unless that is 0."""
    begin, end = 0, min(length, first_tokens or most_tokens)
    while begin < length:
        yield begin, end
        begin, end = end, min(length, end + most_tokens)
