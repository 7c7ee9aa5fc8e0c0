"""The host cache: least recently asked for goes first, reads run beside, and every row has one owner whatever fails."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from runtime.errors import EngineError
from runtime.experts.host_cache import HostCache, Key

ROW_BYTES = 4096


@dataclass
class _Read:
    fill: Callable[[], None]
    is_done: bool = False

    def wait(self) -> None:
        assert not self.is_done, "a read is waited for once"
        self.is_done = True
        self.fill()


class Disk:
    """Rows filled with a number of their key when they are waited for; `broken` keys fail."""

    def __init__(self) -> None:
        self.begun: list[Key] = []
        self.broken: set[Key] = set()
        self.unread: dict[int, Key] = {}

    def begin(self, key: Key, row: Tensor) -> _Read:
        assert row.data_ptr() not in self.unread, "two reads into one row at once"
        self.begun.append(key)
        self.unread[row.data_ptr()] = key

        def fill() -> None:
            del self.unread[row.data_ptr()]
            if key in self.broken:
                raise EngineError("the disk refuses")
            row.fill_(value_of(key))

        return _Read(fill)


def value_of(key: Key) -> int:
    return (16 * key[0] + key[1]) % 251


def test_the_least_recently_asked_for_makes_room() -> None:
    disk = Disk()
    cache = HostCache(2, ROW_BYTES, disk.begin)
    for key in ((0, 0), (0, 1), (0, 0), (0, 2), (0, 0), (0, 1)):
        assert torch.equal(cache.take(key), torch.full((ROW_BYTES,), value_of(key), dtype=torch.uint8))
    assert disk.begun == [(0, 0), (0, 1), (0, 2), (0, 1)]


def test_what_is_announced_is_begun_at_once_and_stays_until_it_is_taken() -> None:
    disk = Disk()
    cache = HostCache(4, ROW_BYTES, disk.begin)
    cache.take((0, 0))
    assert cache.announce([(0, 0), (0, 1), (0, 2)]) == 2
    assert disk.begun == [(0, 0), (0, 1), (0, 2)]
    assert len(disk.unread) == 2
    # The one that is here was asked for again, so another of longer ago goes first.
    assert cache.announce([(0, 1), (0, 2), (0, 3), (0, 4)]) == 2
    assert [int(cache.take((0, expert))[0]) for expert in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert disk.begun[3:] == [(0, 3), (0, 4)]


def test_more_than_there_are_rows_can_be_announced() -> None:
    disk = Disk()
    cache = HostCache(2, ROW_BYTES, disk.begin)
    assert cache.announce([(0, expert) for expert in range(5)]) == 5
    assert [int(cache.take((0, expert))[0]) for expert in range(5)] == list(range(5))
    assert disk.begun == [(0, expert) for expert in range(5)]


def test_a_read_that_fails_is_as_if_never_asked_for() -> None:
    disk = Disk()
    disk.broken = {(0, 1)}
    cache = HostCache(2, ROW_BYTES, disk.begin)
    cache.announce([(0, 0), (0, 1)])
    with pytest.raises(EngineError, match="refuses"):
        cache.take((0, 1))
    cache.check_integrity()
    disk.broken = set()
    assert int(cache.take((0, 1))[0]) == value_of((0, 1))
    assert int(cache.take((0, 0))[0]) == 0


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_calls_gives_the_right_bytes(seed: int) -> None:
    rng, disk = random.Random(seed), Disk()
    cache = HostCache(rng.randint(1, 6), ROW_BYTES, disk.begin)
    for _ in range(300):
        keys = [(rng.randrange(3), rng.randrange(5)) for _ in range(rng.randint(1, 8))]
        disk.broken = {key for key in keys if rng.random() < 0.05}
        if rng.random() < 0.5:
            cache.announce(list(dict.fromkeys(keys)), is_passing=rng.random() < 0.5)
        if rng.random() < 0.3:
            cache.let_pass()
        for key in keys[: rng.randint(0, len(keys))]:
            try:
                assert int(cache.take(key)[-1]) == value_of(key)
            except EngineError:
                assert key in disk.broken
            cache.check_integrity()


def test_what_only_passes_makes_room_for_what_is_used() -> None:
    disk = Disk()
    cache = HostCache(6, ROW_BYTES, disk.begin)
    for expert in range(3):
        cache.take((9, expert))
    for layer in range(4):
        # Chunk after chunk a layer finds what it has read, and no layer pushes out what was there.
        for _ in range(3):
            cache.announce([(layer, expert) for expert in range(3)], is_passing=True)
            assert [int(cache.take((layer, expert))[0]) for expert in range(3)] == [
                value_of((layer, expert)) for expert in range(3)
            ]
        cache.let_pass()
        cache.check_integrity()
    assert len(disk.begun) == 3 + 4 * 3
    assert cache.announce([(9, expert) for expert in range(3)]) == 0
