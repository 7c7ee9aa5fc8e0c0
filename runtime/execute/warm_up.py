"""Runs the model once before the first request, so that the first answer pays for no lazy initialisation.

It takes the memory of steps from the system, too: the process grows now, and not in the middle of an answer.
"""

import torch

from runtime.cache.sequence_cache import CacheMoves
from runtime.execute.forward import Forward
from runtime.schedule.step_plan import PlannedSegment, StepPlan
from runtime.spec import PAGE_TOKENS

_SEQUENCE_ID = "warm-up"
_MOST_TOKENS = 256
_MOST_CONTEXT_TOKENS = 8192
"""The first answer must not wait for a longer chunk, or for one that sees more."""
_HEAP_PIECE_BYTES = 1 << 20
_MOST_HEAP_BYTES = 64 << 20
"""What steps need beyond this is in blocks so large that the system maps each of them on its own."""


def grow_heap(num_bytes: int) -> None:
    """Touch and free so much in pieces: where the allocator keeps a heap, later steps find their memory in it."""
    num_pieces = min(num_bytes, _MOST_HEAP_BYTES) // _HEAP_PIECE_BYTES
    pieces = [torch.zeros(_HEAP_PIECE_BYTES, dtype=torch.uint8) for _ in range(num_pieces)]
    pieces.clear()


def warmed_tokens(chunk_tokens: int, context_tokens: int) -> tuple[int, int]:
    """Tokens of the longest chunk that `warm_up` runs, and of the context that it sees."""
    end = max(2, min(context_tokens, _MOST_CONTEXT_TOKENS))
    return min(chunk_tokens, end - 1, _MOST_TOKENS), end


def warm_up(forward: Forward, chunk_tokens: int, context_tokens: int, num_logit_rows: int) -> None:
    """The last chunk and the last token of a full context, the widest steps there are; no expert counts as used.

    The chunk asks for up to `num_logit_rows` rows of logits, as scoring does: the matrix library takes memory for them.

    Runs over the first pages and row 0, which no sequence holds yet.
    """
    length, end = warmed_tokens(chunk_tokens, context_tokens)
    _run(forward, end - 1 - length, length, max(1, num_logit_rows), CacheMoves(reset_rows=(0,)))
    _run(forward, end - 1, 1, 1, CacheMoves())


def _run(forward: Forward, start: int, length: int, num_logit_rows: int, moves: CacheMoves) -> None:
    page_ids = tuple(range(-(-(start + length) // PAGE_TOKENS)))
    segment = PlannedSegment(
        _SEQUENCE_ID, (0,) * length, start, page_ids, 0, tuple(range(max(0, length - num_logit_rows), length))
    )
    forward.run(StepPlan((segment,), (moves,), is_decode=False))
