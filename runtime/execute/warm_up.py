"""Runs the model once before the first request, so that the first answer pays for no lazy initialisation."""

from runtime.cache.sequence_cache import CacheMoves
from runtime.execute.forward import Forward
from runtime.schedule.step_plan import PlannedSegment, StepPlan
from runtime.spec import PAGE_TOKENS

_SEQUENCE_ID = "warm-up"
_MOST_TOKENS = 256
"""The first answer must not wait for a longer one."""


def warm_up(forward: Forward, chunk_tokens: int, num_pages: int) -> None:
    """A prefill chunk and a chunk of a single token; counts as no use of any expert.

    Runs over the first pages and row 0, which no sequence holds yet.
    """
    length = min(chunk_tokens, num_pages * PAGE_TOKENS - 1, _MOST_TOKENS)
    _run(forward, 0, length, CacheMoves(reset_rows=(0,)))
    _run(forward, length, 1, CacheMoves())


def _run(forward: Forward, start: int, length: int, moves: CacheMoves) -> None:
    page_ids = tuple(range(-(-(start + length) // PAGE_TOKENS)))
    segment = PlannedSegment(_SEQUENCE_ID, (0,) * length, start, page_ids, 0, (length - 1,))
    forward.run(StepPlan((segment,), (moves,), is_decode=False))
