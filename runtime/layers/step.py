"""What one forward step computes: token ids of one or more sequences, and where their state lives. Holds tensors."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from runtime.spec import PAGE_TOKENS


class StepInterruptedError(Exception):
    """A step was given up in the middle: its answer is not wanted any more."""


@dataclass(frozen=True)
class Segment:
    """Consecutive new tokens of one sequence, at positions start … start+length-1.

    `page_table` int64 [>= ceil((start+length)/64)] names the pages that hold the sequence's KV, in order; entries past
    that are ignored. `state_row` is the sequence's row in the state pool, which must be at position `start`; a segment
    may go on, in the same row, where the one before it ends. The state after the segment is copied to `save_row`.
    """

    page_table: Tensor
    state_row: int
    start: int
    length: int
    save_row: int | None = None

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True)
class DecodeRows:
    """One new token in each of R sequences, all int64 on the device: a step reads nothing else of the host's.

    token_ids, positions [R]; page_table [R, P]: entries past the page of a row's position are ignored; state_rows [R],
    distinct, each at the row's position.
    """

    token_ids: Tensor
    positions: Tensor
    page_table: Tensor
    state_rows: Tensor

    @property
    def num_rows(self) -> int:
        return self.token_ids.shape[0]

    @property
    def most_tokens(self) -> int:
        """Tokens of the longest sequence that the page table can hold."""
        return self.page_table.shape[1] * PAGE_TOKENS


@dataclass(frozen=True)
class StepInputs:
    """All tokens of one step, segment after segment.

    token_ids, positions int64 [N]; `logit_rows` int64 [M] picks the rows of N whose logits are wanted. A prefill chunk
    is one segment; a decode step has one token per segment.
    """

    token_ids: Tensor
    positions: Tensor
    segments: tuple[Segment, ...]
    logit_rows: Tensor
    is_decode: bool

    @cached_property
    def spans(self) -> tuple[tuple[Segment, slice], ...]:
        """Each segment with its rows of the step."""
        spans, begin = [], 0
        for segment in self.segments:
            spans.append((segment, slice(begin, begin + segment.length)))
            begin += segment.length
        return tuple(spans)
