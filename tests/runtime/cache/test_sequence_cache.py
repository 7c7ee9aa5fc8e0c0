"""Promises of page and row ownership: no leak, one owner a row, no write to a shared page, longest prefix."""

import random

import pytest

from runtime.cache.allocator import OutOfItemsError, RefAllocator
from runtime.cache.sequence_cache import CacheMoves, SequenceCache
from runtime.spec import PAGE_TOKENS


class ModelMemory:
    """Plain-Python pages and rows: what a sequence reads must be exactly its own tokens."""

    def __init__(self, num_pages: int, num_rows: int) -> None:
        self.pages: list[list[int | None]] = [[None] * PAGE_TOKENS for _ in range(num_pages)]
        self.rows: list[tuple[int, ...] | None] = [None] * num_rows

    def apply(self, moves: CacheMoves) -> None:
        for row in moves.reset_rows:
            self.rows[row] = ()
        for source, target in moves.row_copies:
            self.rows[target] = self.rows[source]
        for source, target in moves.page_copies:
            self.pages[target] = list(self.pages[source])

    def write(self, cache: SequenceCache, name: str, start: int, tokens: tuple[int, ...]) -> None:
        held = cache.sequence(name)
        assert self.rows[held.state_row] is not None
        self.rows[held.state_row] = (self.rows[held.state_row] or ()) + tokens
        for offset, token in enumerate(tokens):
            position = start + offset
            self.pages[held.page_ids[position // PAGE_TOKENS]][position % PAGE_TOKENS] = token

    def check(self, cache: SequenceCache, name: str, tokens: tuple[int, ...]) -> None:
        held = cache.sequence(name)
        assert self.rows[held.state_row] == tokens
        read = [self.pages[held.page_ids[i // PAGE_TOKENS]][i % PAGE_TOKENS] for i in range(len(tokens))]
        assert tuple(read) == tokens


def test_lowest_free_id_first_and_last_holder_frees() -> None:
    pool = RefAllocator(3)
    assert [pool.allocate() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OutOfItemsError):
        pool.allocate()
    pool.retain(1)
    pool.release(1)
    assert pool.num_free == 0
    pool.release(1)
    assert pool.allocate() == 1
    pool.check_integrity()


def extend(cache: SequenceCache, memory: ModelMemory, name: str, start: int, tokens: tuple[int, ...]) -> None:
    memory.apply(cache.ensure_writable(name, start, len(tokens)))
    memory.write(cache, name, start, tokens)


def test_next_turn_starts_after_the_saved_one() -> None:
    cache, memory = SequenceCache(8, 4), ModelMemory(8, 4)
    first = tuple(range(100))
    assert cache.open("a", first)[0] == 0
    memory.apply(CacheMoves(reset_rows=(cache.sequence("a").state_row,)))
    extend(cache, memory, "a", 0, first)
    memory.apply(cache.save("a", first))
    cache.close("a")
    cached, moves = cache.open("b", (*first, 7, 8))
    memory.apply(moves)
    assert cached == 100
    extend(cache, memory, "b", 100, (7, 8))
    memory.check(cache, "b", (*first, 7, 8))
    cache.check_integrity()


def test_a_whole_saved_prompt_is_not_reused_for_itself() -> None:
    """The last token must be computed: its logits are not kept."""
    cache = SequenceCache(8, 4)
    cache.open("a", (1, 2, 3))
    cache.ensure_writable("a", 0, 3)
    cache.save("a", (1, 2, 3))
    cache.close("a")
    assert cache.open("b", (1, 2, 3))[0] == 0


def test_one_row_is_handed_on() -> None:
    """With a single row the saved prefix gives its own row to the turn that continues it."""
    cache = SequenceCache(4, 2)
    cache.open("a", (1, 2, 3))
    cache.ensure_writable("a", 0, 3)
    cache.save("a", (1, 2, 3))
    cache.close("a")
    cache.open("x", (9, 9))
    cached, moves = cache.open("b", (1, 2, 3, 4))
    assert cached == 3
    assert not moves
    assert cache.num_saved == 0
    cache.check_integrity()


def test_running_sequences_that_hold_everything_are_an_error_not_a_theft() -> None:
    cache = SequenceCache(2, 1)
    cache.open("a", (1,))
    cache.ensure_writable("a", 0, 2 * PAGE_TOKENS)
    with pytest.raises(OutOfItemsError):
        cache.ensure_writable("a", 2 * PAGE_TOKENS, 1)
    with pytest.raises(OutOfItemsError):
        cache.open("b", (1,))
    cache.check_integrity()


@pytest.mark.parametrize("seed", range(12))
def test_random_operations_keep_every_sequence_intact(seed: int) -> None:
    """Forks, edits, saves and evictions in any order: each sequence reads its own tokens, and nothing leaks."""
    rng = random.Random(seed)
    num_pages, num_rows = rng.choice([(12, 3), (20, 6), (40, 9)])
    cache, memory = SequenceCache(num_pages, num_rows), ModelMemory(num_pages, num_rows)
    running: dict[str, tuple[int, ...]] = {}
    histories: list[tuple[int, ...]] = [()]
    for number in range(400):
        if len(running) < 2 and rng.random() < 0.3:
            base = rng.choice(histories)
            cut = rng.choice([len(base), rng.randint(0, len(base))])
            prompt = (*base[:cut], rng.randrange(4))
            if len(prompt) > 4 * PAGE_TOKENS:
                continue
            name = f"s{number}"
            cached, moves = cache.open(name, prompt)
            memory.apply(moves)
            memory.check(cache, name, prompt[:cached])
            running[name] = prompt[:cached]
        elif running:
            name = rng.choice(sorted(running))
            tokens = running[name]
            if rng.random() < 0.2:
                memory.apply(cache.save(name, tokens))
                histories.append(tokens)
            elif rng.random() < 0.15 or len(tokens) > 4 * PAGE_TOKENS:
                cache.close(name)
                del running[name]
            else:
                new = tuple(rng.randrange(4) for _ in range(rng.choice([1, 1, 2, 63, 64, 65])))
                if len(tokens) + len(new) <= 5 * PAGE_TOKENS:
                    extend(cache, memory, name, len(tokens), new)
                    running[name] = tokens + new
        cache.check_integrity()
        for name, tokens in running.items():
            memory.check(cache, name, tokens)
    for name in list(running):
        cache.close(name)
    cache.forget_saved()
    assert cache.num_pages_used == cache.num_rows_used == 0
    cache.check_integrity()
