"""Which sequence runs which tokens next. Plans in ids; refuses tensors, text and clocks.

Requests are admitted first come, first served, at most `max_running` at a time. A running sequence is prefilled chunk
by chunk, decoded token by token, and closed by computing its last token, so that the whole turn is in the cache for
the next one. `plan` gives the next step, `complete` books it once it ran.
"""

from collections import deque
from itertools import pairwise

from runtime.cache.sequence_cache import CacheMoves, SequenceCache
from runtime.schedule.request import Sequence
from runtime.schedule.step_plan import PlannedSegment, StepPlan
from runtime.spec import PAGE_TOKENS


class Scheduler:
    """Queue and running set over one `SequenceCache`."""

    def __init__(self, cache: SequenceCache, chunk_tokens: int, max_running: int = 1) -> None:
        self._cache = cache
        self._chunk_tokens = chunk_tokens
        self._max_running = max_running
        self._waiting: deque[Sequence] = deque()
        self._running: dict[str, Sequence] = {}
        self._pending_moves: list[CacheMoves] = []
        self._num_last_chat_tokens = 0

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_tokens_in_context(self) -> int:
        """Tokens of the chat that runs, or else of the one that ran last."""
        chats = [sequence.num_tokens for sequence in self._running.values() if not sequence.is_scored]
        return max(chats, default=self._num_last_chat_tokens)

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; it starts when those before it have ended."""
        self._waiting.append(sequence)

    def admit(self) -> list[Sequence]:
        """Move waiting sequences into the running set while there is room; returns those that start now."""
        admitted = []
        while self._waiting and len(self._running) < self._max_running:
            sequence = self._waiting.popleft()
            sequence.num_cached, moves = self._cache.open(
                sequence.sequence_id, sequence.prompt_ids, can_reuse=not sequence.is_scored
            )
            sequence.num_computed = sequence.num_cached
            sequence.phase = "prefill"
            self._pending_moves.append(moves)
            self._running[sequence.sequence_id] = sequence
            admitted.append(sequence)
        return admitted

    def plan(self) -> StepPlan | None:
        """The next step: one prefill or closing chunk if any sequence needs one, else one token of each that decodes.

        None where nothing runs. Raises OutOfItemsError if running sequences hold every page (the planner of memory
        gives one sequence the whole context, so this is a bug, not a user's mistake).
        """
        for sequence in self._running.values():
            if sequence.phase in ("prefill", "closing"):
                return self._plan_chunk(sequence)
        decoding = [sequence for sequence in self._running.values() if sequence.phase == "decode"]
        if not decoding:
            return None
        segments = tuple(self._plan_token(sequence) for sequence in decoding)
        return StepPlan(segments, self._take_moves(), is_decode=True)

    def _plan_token(self, sequence: Sequence) -> PlannedSegment:
        start = sequence.num_computed
        self._pending_moves.append(self._cache.ensure_writable(sequence.sequence_id, start, 1))
        return self._segment(sequence, start, start + 1)

    def _plan_chunk(self, sequence: Sequence) -> StepPlan:
        start = sequence.num_computed
        chunk_tokens = 1 if sequence.is_fed_by_decode else sequence.chunk_tokens or self._chunk_tokens
        end = min(start + chunk_tokens, sequence.num_tokens)
        # All pages first: making room for them must not throw out what is reserved to be saved.
        self._pending_moves.append(self._cache.ensure_writable(sequence.sequence_id, start, end - start))
        borders = sorted({start, end, *(point for point in sequence.save_points if start < point < end)})
        segments = tuple(self._segment(sequence, *pair) for pair in pairwise(borders))
        return StepPlan(segments, self._take_moves(), is_decode=sequence.is_fed_by_decode)

    def _segment(self, sequence: Sequence, start: int, end: int) -> PlannedSegment:
        held = self._cache.sequence(sequence.sequence_id)
        save_row = None
        if end in sequence.save_points:
            save_row = self._cache.reserve(sequence.sequence_id, sequence.tokens(0, end))
        return PlannedSegment(
            sequence.sequence_id,
            sequence.tokens(start, end),
            start,
            tuple(held.page_ids[: -(-end // PAGE_TOKENS)]),
            held.state_row,
            self._wanted_logits(sequence, start, end),
            save_row,
        )

    @staticmethod
    def _wanted_logits(sequence: Sequence, start: int, end: int) -> tuple[int, ...]:
        if sequence.is_scored:
            return tuple(range(end - start))
        is_wanted = end == sequence.num_tokens and sequence.phase in ("prefill", "decode")
        return (end - start - 1,) if is_wanted else ()

    def complete(self, plan: StepPlan) -> None:
        """Book a step that ran. A sequence whose prompt is done decodes from now on; one that closed has ended."""
        for segment in plan.segments:
            sequence = self._running[segment.sequence_id]
            sequence.num_computed = segment.end
            if sequence.num_computed < sequence.num_tokens:
                continue
            if sequence.phase == "prefill":
                sequence.phase = "decode"
            elif sequence.phase == "closing":
                self._end(sequence)

    def finish(self, sequence_id: str) -> None:
        """The answer is complete or cancelled: save what is computed, and compute a last sampled token first.

        A sequence that still waits just leaves the queue.
        """
        sequence = self._running.get(sequence_id)
        if sequence is None:
            self.drop(sequence_id)
            return
        has_uncomputed_answer = sequence.phase == "decode" and sequence.num_computed < sequence.num_tokens
        if has_uncomputed_answer:
            sequence.phase = "closing"
        else:
            self._end(sequence)

    def free_id(self, sequence_id: str) -> None:
        """A finished sequence of this id that still closes gives its last step up."""
        sequence = self._running.get(sequence_id)
        if sequence is not None and sequence.phase == "closing":
            self._end(sequence)

    def abandon(self) -> list[str]:
        """A step failed midway: end what runs and forget what is saved, since neither can be trusted.

        Returns the ids that ended; what waits goes on waiting.
        """
        ended = list(self._running)
        for sequence_id in ended:
            self.drop(sequence_id)
        self._pending_moves.clear()
        self._cache.forget_saved()
        return ended

    def drop(self, sequence_id: str) -> None:
        """Forget a sequence and save nothing of it."""
        sequence = self._running.pop(sequence_id, None)
        if sequence is not None:
            self._cache.close(sequence_id)
        else:
            sequence = next(waiting for waiting in self._waiting if waiting.sequence_id == sequence_id)
            self._waiting.remove(sequence)
        sequence.phase = "ended"

    def _end(self, sequence: Sequence) -> None:
        if not sequence.is_scored:
            self._save(sequence)
            self._num_last_chat_tokens = sequence.num_tokens
        del self._running[sequence.sequence_id]
        sequence.phase = "ended"
        self._cache.close(sequence.sequence_id)

    def _save(self, sequence: Sequence) -> None:
        computed = sequence.tokens(0, sequence.num_computed)
        self._pending_moves.append(self._cache.save(sequence.sequence_id, computed))

    def _take_moves(self) -> tuple[CacheMoves, ...]:
        moves = tuple(move for move in self._pending_moves if move)
        self._pending_moves.clear()
        return moves

    def check_integrity(self) -> None:
        """Running sequences and the cache agree, and no count runs ahead of its tokens."""
        self._cache.check_integrity()
        for sequence in self._running.values():
            held = self._cache.sequence(sequence.sequence_id)
            assert 0 <= sequence.num_cached <= sequence.num_computed <= sequence.num_tokens, "token counts"
            assert len(held.page_ids) * PAGE_TOKENS >= sequence.num_computed, "fewer pages than computed tokens"
