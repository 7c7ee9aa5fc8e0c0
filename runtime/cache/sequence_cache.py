"""Who holds which KV page and which state row: running sequences and saved prefixes, in plain ids.

Owns both allocators and the prefix index. It moves no memory: it returns the copies that the executor must make, in
order, before the next step runs. A page is written only by a sequence that is its one holder (copy on write); when
pages or rows run out, saved prefixes go, least recently used first.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from runtime.cache.allocator import OutOfItemsError, RefAllocator
from runtime.cache.prefix_index import PrefixIndex, SavedPrefix, pack
from runtime.spec import PAGE_TOKENS


@dataclass(frozen=True)
class CacheMoves:
    """Copies and resets, done in this order: rows to zero, (source, target) rows, (source, target) pages."""

    reset_rows: tuple[int, ...] = ()
    row_copies: tuple[tuple[int, int], ...] = ()
    page_copies: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reset_rows or self.row_copies or self.page_copies)


@dataclass
class OpenSequence:
    """Pages and row of one running sequence; `page_ids[i]` holds tokens i*64 up to (i+1)*64."""

    state_row: int
    page_ids: list[int] = field(default_factory=list)


class SequenceCache:
    """Pages and rows of all sequences. One page pool and one state pool of these sizes stand behind it."""

    def __init__(self, num_pages: int, num_rows: int) -> None:
        self._pages = RefAllocator(num_pages)
        self._rows = RefAllocator(num_rows)
        self._open: dict[str, OpenSequence] = {}
        self._prefixes = PrefixIndex()

    @property
    def num_pages(self) -> int:
        return self._pages.num_items

    @property
    def num_rows(self) -> int:
        return self._rows.num_items

    @property
    def open_ids(self) -> set[str]:
        return set(self._open)

    @property
    def num_saved(self) -> int:
        return len(self._prefixes)

    @property
    def num_pages_used(self) -> int:
        return self._pages.num_items - self._pages.num_free

    @property
    def num_rows_used(self) -> int:
        return self._rows.num_items - self._rows.num_free

    def reusable_prefix(self, token_ids: Sequence[int]) -> SavedPrefix | None:
        """What `open` would restore."""
        return self._prefixes.longest_match(token_ids)

    def open(self, sequence_id: str, token_ids: Sequence[int], can_reuse: bool = True) -> tuple[int, CacheMoves]:
        """Start a sequence; returns how many leading tokens it need not compute, and the moves that restore them.

        Raises OutOfItemsError where every row belongs to a running sequence.
        """
        assert sequence_id not in self._open, f"sequence {sequence_id} is open"
        prefix = self._prefixes.longest_match(token_ids) if can_reuse else None
        if prefix is None:
            row = self._allocate(self._rows)
            self._open[sequence_id] = OpenSequence(row)
            return 0, CacheMoves(reset_rows=(row,))
        self._prefixes.touch(prefix)
        page_ids = list(prefix.page_ids)
        for page in page_ids:
            self._pages.retain(page)
        try:
            row, moves = self._adopt_row(prefix)
        except OutOfItemsError:
            self._release_pages(page_ids)
            raise
        self._open[sequence_id] = OpenSequence(row, page_ids)
        return prefix.num_tokens, moves

    def _adopt_row(self, prefix: SavedPrefix) -> tuple[int, CacheMoves]:
        """A row with the prefix's state: a copy, or the prefix's own row where no other row is left."""
        while not self._rows.num_free:
            victim = self._prefixes.least_recently_used()
            if victim is None:
                raise OutOfItemsError
            if victim is prefix:
                self._rows.retain(prefix.state_row)
                self._drop(prefix)
                return prefix.state_row, CacheMoves()
            self._drop(victim)
        row = self._rows.allocate()
        return row, CacheMoves(row_copies=((prefix.state_row, row),))

    def ensure_writable(self, sequence_id: str, start: int, length: int) -> CacheMoves:
        """Make positions start..start+length-1 the sequence's own: new pages, and copies of shared ones.

        Raises OutOfItemsError where running sequences hold all pages; pages allocated until then stay the sequence's.
        """
        sequence = self._open[sequence_id]
        first, last = start // PAGE_TOKENS, (start + length - 1) // PAGE_TOKENS
        assert first <= len(sequence.page_ids), "a gap in the sequence's pages"
        copies = []
        for index in range(first, last + 1):
            if index == len(sequence.page_ids):
                sequence.page_ids.append(self._allocate(self._pages))
            elif self._pages.num_holders(sequence.page_ids[index]) > 1:
                copies.extend(self._make_own(sequence, index))
        return CacheMoves(page_copies=tuple(copies))

    def num_pages_to_write(self, sequence_id: str, start: int, length: int) -> int:
        """Pages that `ensure_writable` takes, those apart that only saved prefixes hold beside the sequence."""
        page_ids = self._open[sequence_id].page_ids
        first, last = start // PAGE_TOKENS, (start + length - 1) // PAGE_TOKENS
        others = [other for name, other in self._open.items() if name != sequence_id]
        shared = [page for page in page_ids[first : last + 1] if self._pages.num_holders(page) > 1]
        num_copies = sum(any(page in other.page_ids for other in others) for page in shared)
        return max(0, last + 1 - len(page_ids)) + num_copies

    def _make_own(self, sequence: OpenSequence, index: int) -> list[tuple[int, int]]:
        shared = sequence.page_ids[index]
        while not self._pages.num_free and self._pages.num_holders(shared) > 1:
            self._drop_least_recently_used()
        if self._pages.num_holders(shared) == 1:
            return []
        page = self._pages.allocate()
        sequence.page_ids[index] = page
        self._pages.release(shared)
        return [(shared, page)]

    def save(self, sequence_id: str, token_ids: Sequence[int]) -> CacheMoves:
        """Keep the sequence's state as it is, after exactly `token_ids`, for later requests.

        Saves nothing where running sequences leave no row for it: a cache may always decline.
        """
        row = self.reserve(sequence_id, token_ids)
        return CacheMoves() if row is None else CacheMoves(row_copies=((self._open[sequence_id].state_row, row),))

    def reserve(self, sequence_id: str, token_ids: Sequence[int]) -> int | None:
        """Save the state that the next step will have after exactly `token_ids`: the row where the step must put it.

        The sequence must hold the tokens' pages by now. None where the prefix is saved already or no row is left. If
        the step fails, the prefix is not what it says: `forget_saved`.
        """
        sequence = self._open[sequence_id]
        known = self._prefixes.find(token_ids)
        if known is not None:
            self._prefixes.touch(known)
        if known is not None or not token_ids:
            return None
        try:
            row = self._allocate(self._rows)
        except OutOfItemsError:
            return None
        num_pages = -(-len(token_ids) // PAGE_TOKENS)
        assert num_pages <= len(sequence.page_ids), "tokens without pages"
        page_ids = tuple(sequence.page_ids[:num_pages])
        for page in page_ids:
            self._pages.retain(page)
        self._prefixes.insert(SavedPrefix(pack(token_ids), page_ids, row))
        return row

    def close(self, sequence_id: str) -> None:
        """Give back the sequence's row and its hold on pages; saved prefixes keep theirs."""
        sequence = self._open.pop(sequence_id)
        self._rows.release(sequence.state_row)
        self._release_pages(sequence.page_ids)

    def sequence(self, sequence_id: str) -> OpenSequence:
        """Pages and row of a running sequence, to read."""
        return self._open[sequence_id]

    def forget_saved(self) -> None:
        """Drop every saved prefix."""
        while len(self._prefixes):
            self._drop_least_recently_used()

    def forget_rows(self, state_rows: Collection[int | None]) -> None:
        """Drop the saved prefixes whose state should lie in these rows."""
        for prefix in [prefix for prefix in self._prefixes if prefix.state_row in state_rows]:
            self._drop(prefix)

    def _allocate(self, allocator: RefAllocator) -> int:
        while not allocator.num_free:
            self._drop_least_recently_used()
        return allocator.allocate()

    def _drop_least_recently_used(self) -> None:
        prefix = self._prefixes.least_recently_used()
        if prefix is None:
            raise OutOfItemsError
        self._drop(prefix)

    def _drop(self, prefix: SavedPrefix) -> None:
        self._prefixes.remove(prefix)
        self._rows.release(prefix.state_row)
        self._release_pages(prefix.page_ids)

    def _release_pages(self, page_ids: Sequence[int]) -> None:
        for page in page_ids:
            self._pages.release(page)

    def check_integrity(self) -> None:
        """Holders counted from sequences and prefixes equal the allocators' counts; no sequence shares a row."""
        self._pages.check_integrity()
        self._rows.check_integrity()
        self._prefixes.check_integrity()
        owners = [*self._open.values(), *self._prefixes]
        page_holders = [0] * self._pages.num_items
        row_holders = [0] * self._rows.num_items
        for owner in owners:
            row_holders[owner.state_row] += 1
            assert len(set(owner.page_ids)) == len(owner.page_ids), "a page twice in one sequence"
            for page in owner.page_ids:
                page_holders[page] += 1
        for prefix in self._prefixes:
            assert len(prefix.page_ids) == -(-prefix.num_tokens // PAGE_TOKENS), "pages and tokens of a prefix differ"
        assert page_holders == [self._pages.num_holders(page) for page in range(self._pages.num_items)], "page holders"
        assert row_holders == [self._rows.num_holders(row) for row in range(self._rows.num_items)], "row holders"
        assert max(row_holders, default=0) <= 1, "a state row has two owners"
