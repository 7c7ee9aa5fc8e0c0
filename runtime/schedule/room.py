"""Whether there is a place and enough pages: to start a sequence, and for the next step of one that runs.

Reads the cache and changes nothing. Running sequences are passed in the order in which they are sure of their pages:
chats first, each kind by its start.
"""

from collections.abc import Sequence as Items

from runtime.cache.sequence_cache import SequenceCache
from runtime.schedule.page_safety import Holding, spare_pages
from runtime.schedule.request import Sequence
from runtime.spec import PAGE_TOKENS


class Room:
    """Places and pages over one cache. One of `max_running` places is a chat's wherever there is more than one."""

    def __init__(self, cache: SequenceCache, max_running: int) -> None:
        self._cache = cache
        self._num_places = min(max_running, cache.num_rows)
        self._most_side_calls = max(1, self._num_places - 1)

    def can_ever_hold(self, sequence: Sequence) -> bool:
        """Alone, with nothing saved beside it."""
        return self._num_needed(sequence) <= self._cache.num_pages

    def can_start(self, sequence: Sequence, running: Items[Sequence]) -> bool:
        """There is a place, and all of them can still come to their end."""
        num_side_calls = sum(other.is_side_call for other in running)
        if len(running) >= self._num_places or (sequence.is_side_call and num_side_calls >= self._most_side_calls):
            return False
        holdings = [self._holding(other) for other in running]
        place = len(running) if sequence.is_side_call else len(running) - num_side_calls
        holdings.insert(place, self._future_holding(sequence))
        return min(spare_pages(self._cache.num_pages, holdings)) >= 0

    def can_step(self, running: Items[Sequence], index: int, span: tuple[int, int]) -> bool:
        """The sequence at `index` can compute positions `span` without a page that one before it may need.

        The first always can.
        """
        start, end = span
        num_new = self._cache.num_pages_to_write(running[index].sequence_id, start, end - start)
        if index == 0 or num_new == 0:
            return True
        spare = spare_pages(self._cache.num_pages, [self._holding(other) for other in running])
        return num_new <= min(spare[:index])

    def check_integrity(self, running: Items[Sequence]) -> None:
        """No two sequences can block each other for ever."""
        holdings = [self._holding(sequence) for sequence in running]
        assert min(spare_pages(self._cache.num_pages, holdings), default=0) >= 0, "sequences may block each other"

    def _num_needed(self, sequence: Sequence) -> int:
        return sequence.num_needed_pages(self._cache.num_pages)

    def _holding(self, sequence: Sequence) -> Holding:
        page_ids = self._cache.sequence(sequence.sequence_id).page_ids
        index = sequence.num_computed // PAGE_TOKENS
        write_page = page_ids[index] if index < len(page_ids) else None
        return Holding(page_ids, write_page, self._num_needed(sequence))

    def _future_holding(self, sequence: Sequence) -> Holding:
        """Of one that starts: what it restores."""
        tokens = sequence.tokens(0, sequence.num_tokens)
        prefix = None if sequence.is_scored else self._cache.reusable_prefix(tokens)
        if prefix is None:
            return Holding((), None, self._num_needed(sequence))
        write_page = prefix.page_ids[-1] if prefix.num_tokens % PAGE_TOKENS else None
        return Holding(prefix.page_ids, write_page, self._num_needed(sequence))
