"""Which sequence runs which tokens next. Plans in ids; refuses tensors, text and clocks.

A waiting sequence starts when there is a place and enough pages for all that run to come to their end. It is
prefilled chunk by chunk, decoded token by token, and a chat is closed by computing its last token, so that the whole
turn is in the cache for the next one. `plan` gives the next step, `complete` books it once it ran, `note_duration`
tells what it took. A chat that finds no room gets that of side calls: they go back to the queue and read again.
"""

from itertools import pairwise

from runtime.cache.sequence_cache import CacheMoves, SequenceCache
from runtime.errors import RequestError
from runtime.schedule.chunk_size import ChunkSize
from runtime.schedule.request import UNKNOWN_ID, Sequence
from runtime.schedule.room import Room
from runtime.schedule.step_plan import PlannedSegment, StepPlan
from runtime.schedule.time_share import TimeShare
from runtime.schedule.turns import Turn, Turns
from runtime.schedule.waiting import WaitingQueue
from runtime.spec import PAGE_TOKENS


class Scheduler:
    """Queue and running set over one `SequenceCache`.

    `max_running` sequences run at once, one of them a chat wherever there is more than one place. Side calls take up to
    `side_call_share` of the step time beside a chat. `chunk_target_s` bounds a chunk while a chat decodes beside it;
    None leaves it at `chunk_tokens`. Where no other chat waits, a step of a chat has up to `num_step_chunks` chunks.
    """

    def __init__(
        self,
        cache: SequenceCache,
        chunk_tokens: int,
        max_running: int = 1,
        side_call_share: float = 0.3,
        chunk_target_s: float | None = None,
        num_step_chunks: int = 1,
    ) -> None:
        self._cache = cache
        self._chunk_tokens = chunk_tokens
        self._num_step_chunks = num_step_chunks
        self._room = Room(cache, max_running)
        self._waiting = WaitingQueue()
        self._running: dict[str, Sequence] = {}
        self._time_share = TimeShare(side_call_share)
        self._turns = Turns(self._time_share)
        self._short_chunk = ChunkSize(chunk_tokens, chunk_target_s)
        self._pending_moves: list[CacheMoves] = []
        self._unsettled_ids: set[str] = set()
        """Sequences whose first moves no step has made yet."""
        self._may_have_room = True
        """Something ended or came since the queue was looked at: for a long prompt that is not done at every step."""
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
    def side_call_time_share(self) -> float | None:
        """What side calls took of the step time of the last seconds in which a chat ran, too."""
        return self._time_share.used_share

    @property
    def num_tokens_in_context(self) -> int:
        """Tokens of the chat that runs, or else of the one that ran last."""
        chats = [sequence.num_tokens for sequence in self._running.values() if not sequence.is_side_call]
        return max(chats, default=self._num_last_chat_tokens)

    def _in_order(self) -> list[Sequence]:
        """Running sequences, chats first, each kind by its start."""
        return sorted(self._running.values(), key=lambda sequence: sequence.is_side_call)

    @property
    def may_admit(self) -> bool:
        """`admit` may start or pause something, whose tokens must be known then."""
        return self._may_have_room and bool(self._waiting)

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises RequestError for one that could not run alone either."""
        if not self._room.can_ever_hold(sequence):
            num_wanted = len(sequence.prompt_ids) + (sequence.max_new_tokens or 0)
            raise RequestError(
                f"The request needs room for {num_wanted:,} tokens, but there is room for "
                f"{self._cache.num_pages * PAGE_TOKENS:,}; shorten it, or load the model with a larger context."
            )
        self._waiting.push(sequence)
        self._may_have_room = True

    # ---- starting

    def admit(self) -> list[Sequence]:
        """Start waiting sequences while there is room; returns those that start for the first time.

        None starts while a chat closes: the next turn, or a title of it, may want what that saves.
        """
        admitted: list[Sequence] = []
        if not self._may_have_room or any(sequence.phase == "closing" for sequence in self._running.values()):
            return admitted
        while (sequence := self._waiting.head) is not None and self._make_room(sequence):
            self._waiting.remove(sequence)
            self._start(sequence)
            if not sequence.was_paused:
                admitted.append(sequence)
        self._may_have_room = False
        return admitted

    def _make_room(self, sequence: Sequence) -> bool:
        """Whether it can start now; a chat pauses as many side calls for it as it takes, the youngest first."""
        running = self._in_order()
        can_pause = [other for other in running if other.is_side_call and not other.is_scored]
        most_paused = 0 if sequence.is_side_call else len(can_pause)
        for num_paused in range(most_paused + 1):
            paused = can_pause[len(can_pause) - num_paused :]
            if self._room.can_start(sequence, [other for other in running if other not in paused]):
                for other in reversed(paused):
                    self._pause(other)
                return True
        return False

    def _start(self, sequence: Sequence) -> None:
        assert not sequence.num_expected, "a sequence starts with a token that nobody knows"
        tokens = sequence.tokens(0, sequence.num_tokens)
        num_cached, moves = self._cache.open(sequence.sequence_id, tokens, can_reuse=not sequence.is_scored)
        sequence.num_cached = min(num_cached, len(sequence.prompt_ids))
        sequence.num_computed = num_cached
        sequence.phase = "prefill"
        self._pending_moves.append(moves)
        self._unsettled_ids.add(sequence.sequence_id)
        self._running[sequence.sequence_id] = sequence

    def _pause(self, sequence: Sequence) -> None:
        """Back to the queue with what it generated; it reads prompt and answer again when there is room."""
        del self._running[sequence.sequence_id]
        self._unsettled_ids.discard(sequence.sequence_id)
        self._cache.close(sequence.sequence_id)
        sequence.phase, sequence.was_paused = "waiting", True
        sequence.num_cached = sequence.num_computed = 0
        self._waiting.push_back(sequence)
        self._may_have_room = True

    # ---- steps

    def plan(self) -> StepPlan | None:
        """The next step: a prefill or closing chunk, or one token of each sequence that decodes in it.

        None where nothing runs, or all that could wait for tokens that are expected.
        """
        if not self._running:
            return None
        running = self._in_order()
        runnable = [
            sequence
            for index, sequence in enumerate(running)
            if not sequence.is_spent and self._room.can_step(running, index, self._next_span(sequence))
        ]
        if not runnable and any(sequence.is_spent for sequence in running):
            return None
        assert runnable, "every running sequence waits for pages of another"
        turn = self._turns.choose(runnable)
        segments = self._chunk_segments(turn, running) if turn.is_chunk else self._token_segments(turn, running)
        decoding_chats = [chat for chat in runnable if chat.phase == "decode" and not chat.is_side_call]
        return StepPlan(
            segments,
            self._take_moves(),
            is_decode=not turn.is_chunk or turn.sequences[0].is_fed_by_decode,
            has_chat=not running[0].is_side_call,
            has_side_call=running[-1].is_side_call,
            holds_up_chat=not {chat.sequence_id for chat in decoding_chats} <= {part.sequence_id for part in segments},
            chunk_tokens=turn.sequences[0].chunk_tokens or self._chunk_tokens if turn.is_chunk else None,
        )

    def _token_segments(self, turn: Turn, running: list[Sequence]) -> tuple[PlannedSegment, ...]:
        able: list[Sequence] = []
        for sequence in turn.sequences:
            start, end = self._next_span(sequence)
            # Those before it in this step have their pages by now.
            if not able or self._room.can_step(running, running.index(sequence), (start, end)):
                self._pending_moves.append(self._cache.ensure_writable(sequence.sequence_id, start, 1))
                able.append(sequence)
        return tuple(self._segment(sequence, *self._next_span(sequence)) for sequence in able)

    def _next_span(self, sequence: Sequence) -> tuple[int, int]:
        """Positions of its next step."""
        start = sequence.num_computed
        if sequence.phase == "decode" or sequence.is_fed_by_decode:
            return start, start + 1
        return start, min(start + self._most_chunk_tokens(sequence), sequence.num_tokens)

    def _most_chunk_tokens(self, sequence: Sequence) -> int:
        chunk_tokens = sequence.chunk_tokens or self._chunk_tokens
        if self._must_be_short(sequence):
            return min(chunk_tokens, self._short_chunk.tokens)
        # The logits of every token of a long step would be too many; and a chat may come while a side call is read.
        is_one_chunk = sequence.is_scored or sequence.is_side_call
        return chunk_tokens if is_one_chunk else chunk_tokens * self._num_step_chunks

    def _must_be_short(self, sequence: Sequence) -> bool:
        """A chat waits for its next token while a chunk runs. Side calls' streams never shorten a chat's chunks: what
        borders they have, and so their bits, does not depend on what runs beside the chat."""
        chats = [chat for chat in self._running.values() if chat is not sequence and not chat.is_side_call]
        return any(sequence.is_side_call or chat.phase == "decode" for chat in chats)

    def _chunk_segments(self, turn: Turn, running: list[Sequence]) -> tuple[PlannedSegment, ...]:
        """A chunk of the turn's first sequence, filled up with others' tokens."""
        first, *others = turn.sequences
        segments = self._segments_of(first, *self._next_span(first))
        num_left = self._most_chunk_tokens(first) - (segments[-1].end - segments[0].start)
        for other in others:
            start, end = self._next_span(other)
            end = min(end, start + num_left)
            # Those before it in this chunk have their pages by now.
            if end > start and self._room.can_step(running, running.index(other), (start, end)):
                segments += self._segments_of(other, start, end)
                num_left -= end - start
                other.last_chunk_turn = first.last_chunk_turn
        return segments

    def _segments_of(self, sequence: Sequence, start: int, end: int) -> tuple[PlannedSegment, ...]:
        """Positions start..end-1, cut where a state is saved."""
        # All pages first: making room for them must not throw out what is reserved to be saved.
        self._pending_moves.append(self._cache.ensure_writable(sequence.sequence_id, start, end - start))
        borders = sorted({start, end, *(point for point in sequence.save_points if start < point < end)})
        return tuple(self._segment(sequence, *pair) for pair in pairwise(borders))

    def _segment(self, sequence: Sequence, start: int, end: int) -> PlannedSegment:
        held = self._cache.sequence(sequence.sequence_id)
        save_row = None
        if end in sequence.save_points and not sequence.is_side_call:
            save_row = self._cache.reserve(sequence.sequence_id, sequence.tokens(0, end))
        return PlannedSegment(
            sequence.sequence_id,
            sequence.tokens(start, end),
            start,
            tuple(held.page_ids[: -(-end // PAGE_TOKENS)]),
            held.state_row,
            self._wanted_logits(sequence, start, end),
            save_row,
            sequence.is_side_call,
        )

    @staticmethod
    def _wanted_logits(sequence: Sequence, start: int, end: int) -> tuple[int, ...]:
        if sequence.is_scored:
            return tuple(range(end - start))
        is_wanted = end == sequence.num_tokens and sequence.phase in ("prefill", "decode")
        return (end - start - 1,) if is_wanted else ()

    def complete(self, plan: StepPlan) -> None:
        """Book a step that ran. A sequence whose prompt is done decodes from now on; one that closed has ended."""
        self._unsettled_ids.clear()
        for segment in plan.segments:
            sequence = self._running[segment.sequence_id]
            sequence.num_computed = segment.end
            if sequence.num_computed < sequence.num_tokens:
                continue
            if sequence.phase == "prefill":
                sequence.phase = "decode"
            elif sequence.phase == "closing":
                self._end(sequence)

    def note_duration(self, plan: StepPlan, seconds: float) -> None:
        """A completed step took so long, its events included."""
        num_side_rows = sum(segment.is_side_call for segment in plan.segments)
        num_chat_rows = len(plan.segments) - num_side_rows
        if plan.has_chat:
            self._time_share.note(num_chat_rows, num_side_rows, plan.is_decode, plan.has_side_call, seconds)
        if not plan.is_decode:
            self._short_chunk.note(plan.num_tokens, seconds)

    def undo(self, plan: StepPlan) -> None:
        """A step was given up and left its sequences as they were: as if never planned, but that its moves are made."""
        self._unsettled_ids.clear()
        self._cache.forget_rows({segment.save_row for segment in plan.segments})

    # ---- ending

    def finish(self, sequence_id: str) -> None:
        """The answer is complete or cancelled: save what is computed of a chat, and compute its last token first.

        A sequence that still waits just leaves the queue. What a launched step draws for it is forgotten: that step
        computes its last token.
        """
        sequence = self._running.get(sequence_id)
        if sequence is None:
            self.drop(sequence_id)
            return
        sequence.forget_expected()
        has_uncomputed_answer = sequence.phase == "decode" and sequence.num_computed < sequence.num_tokens
        if has_uncomputed_answer and not sequence.is_side_call:
            sequence.phase = "closing"
        else:
            self._end(sequence)

    def free_id(self, sequence_id: str) -> None:
        """A finished sequence of this id that still closes gives its last step up."""
        sequence = self._running.get(sequence_id)
        if sequence is not None and sequence.phase == "closing":
            self._end(sequence)

    def abandon(self, plan: StepPlan | None = None) -> list[str]:
        """A step failed midway: end what ran in it, or all that run if there is no plan, and forget what is saved.

        Returns the ids that ended. Sequences that had no part in it go on; those whose first moves were lost with it
        start again.
        """
        in_plan = set() if plan is None else {segment.sequence_id for segment in plan.segments}
        ended = [name for name in self._running if plan is None or name in in_plan]
        for sequence_id in ended:
            self.drop(sequence_id)
        for sequence_id in [name for name in self._running if name in self._unsettled_ids]:
            self._pause(self._running[sequence_id])
        self._pending_moves.clear()
        self._cache.forget_saved()
        return ended

    def drop(self, sequence_id: str) -> None:
        """Forget a sequence and save nothing of it."""
        sequence = self._running.pop(sequence_id, None)
        if sequence is not None:
            self._unsettled_ids.discard(sequence_id)
            self._cache.close(sequence_id)
        else:
            sequence = self._waiting.find(sequence_id)
            assert sequence is not None, f"sequence {sequence_id} neither runs nor waits"
            self._waiting.remove(sequence)
        sequence.phase = "ended"
        self._may_have_room = True

    def _end(self, sequence: Sequence) -> None:
        if not sequence.is_side_call:
            self._save(sequence)
            self._num_last_chat_tokens = sequence.num_tokens
        self.drop(sequence.sequence_id)

    def _save(self, sequence: Sequence) -> None:
        computed = sequence.tokens(0, sequence.num_computed)
        assert UNKNOWN_ID not in computed[len(sequence.prompt_ids) :], "a prefix with a token that nobody knows"
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
        assert set(self._running) == self._cache.open_ids, "a sequence holds pages and does not run"
        assert self._unsettled_ids <= set(self._running), "moves of a sequence that ended"
        self._room.check_integrity(self._in_order())
