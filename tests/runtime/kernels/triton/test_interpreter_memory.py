"""The check of what interpreted kernels touch: it says what it should, and keeps quiet about the rest."""

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.support.interpreter_memory import LaunchMemory, OutsideStorageError
from tests.support.triton_mode import has_gpu

pytestmark = pytest.mark.skipif(has_gpu(), reason="kernels are compiled where there is a GPU")


@triton.jit
def _copy(source_ptr, target_ptr, first, last, source_first, target_first, COUNT: tl.constexpr):
    """Elements of the block from `first` up to `last`."""
    places = tl.arange(0, COUNT)
    mask = (places >= first) & (places < last)
    values = tl.load(source_ptr + places + source_first, mask=mask)
    tl.store(target_ptr + places + target_first, values, mask=mask)


@triton.jit
def _element(source_ptr, place):
    return tl.load(source_ptr + place)


@triton.jit
def _load_one(source_ptr, target_ptr, place):
    tl.store(target_ptr, _element(source_ptr, place))


@triton.jit
def _store_one(target_ptr, place):
    tl.store(target_ptr + place, 1)


@triton.jit
def _store_first(target_ptr, place):
    """By a mask that the interpreter makes of integers."""
    tl.store(target_ptr + place + tl.arange(0, 1), 7, mask=(tl.arange(0, 1) < 1) & (place == 0))


@triton.jit
def _count(counters_ptr, num_counted, COUNT: tl.constexpr):
    places = tl.arange(0, COUNT)
    tl.atomic_add(counters_ptr + places, 1, mask=places < num_counted)


@triton.jit
def _claim(counter_ptr, place):
    tl.atomic_cas(counter_ptr + place, 0, 1)


@triton.jit
def _copy_either(sources, target_ptr, COUNT: tl.constexpr):
    places = tl.arange(0, COUNT)
    tl.store(target_ptr + places, tl.load(tl.where(places % 2 == 0, sources[0] + places, sources[1] + places)))


def _numbers(count: int) -> Tensor:
    return torch.arange(1, count + 1, dtype=torch.int32)


def test_what_is_masked_away_may_lie_outside() -> None:
    source, target = _numbers(5), torch.zeros(5, dtype=torch.int32)
    _copy[(1,)](source, target, 0, 5, 0, 0, 8)
    assert torch.equal(source, target)
    _copy[(1,)](source, target, 3, 8, -3, -3, 8)
    _copy[(1,)](source, target, 8, 8, 0, 0, 8)
    _count[(1,)](target, 5, 8)
    assert torch.equal(target, source + 1)


def test_a_mask_of_integers_is_a_mask() -> None:
    target = torch.zeros(1, dtype=torch.int32)
    for place in (0, 1):
        _store_first[(1,)](target, place)
    assert target == 7


def test_a_load_past_the_end_is_told() -> None:
    fault = r"_copy: load of 4 bytes outside .* \(1 of 6 addresses\): 4 bytes past the end of source_ptr"
    with pytest.raises(OutsideStorageError, match=fault):
        _copy[(1,)](_numbers(5), torch.zeros(8, dtype=torch.int32), 0, 6, 0, 0, 8)
    with pytest.raises(OutsideStorageError, match=r"_load_one: load .*: 40 bytes past the end of source_ptr"):
        _load_one[(1,)](_numbers(5), _numbers(1), 14)


def test_a_store_before_the_begin_is_told() -> None:
    fault = r"_copy: store of 4 bytes outside .* \(2 of 8 addresses\): 8 bytes before the begin of target_ptr"
    with pytest.raises(OutsideStorageError, match=fault):
        _copy[(1,)](_numbers(8), torch.zeros(8, dtype=torch.int32), 0, 8, 0, -2, 8)
    with pytest.raises(OutsideStorageError, match=r"_store_one: store .*: 4 bytes before the begin of target_ptr"):
        _store_one[(1,)](_numbers(5), -1)


def test_nothing_is_stored_outside() -> None:
    whole = _numbers(8)
    part = torch.from_numpy(whole.numpy()[2:6])
    with pytest.raises(OutsideStorageError, match="2 of 6 addresses"):
        _copy[(1,)](_numbers(8), part, 0, 6, 0, 0, 8)
    assert torch.equal(whole, _numbers(8))


def test_atomics_outside_are_told() -> None:
    with pytest.raises(OutsideStorageError, match=r"_count: atomic .*: 4 bytes past the end of counters_ptr"):
        _count[(1,)](_numbers(5), 6, 8)
    with pytest.raises(OutsideStorageError, match=r"_claim: atomic .*: 4 bytes before the begin of counter_ptr"):
        _claim[(1,)](_numbers(5), -1)


def test_the_storage_counts_not_the_view() -> None:
    target = torch.zeros(1, dtype=torch.int32)
    _load_one[(1,)](_numbers(5)[:2], target, 4)
    assert target == 5


def test_a_block_may_lie_in_several_storages() -> None:
    target = torch.zeros(8, dtype=torch.int32)
    _copy_either[(1,)]((_numbers(8), -_numbers(8)), target, 8)
    assert target.tolist() == [1, -2, 3, -4, 5, -6, 7, -8]
    with pytest.raises(OutsideStorageError, match=r"1 of 8 addresses\): 4 bytes past the end of sources\[1\]"):
        _copy_either[(1,)]((_numbers(8), -_numbers(7)), target, 8)


def test_storages_of_the_last_launch_are_forgotten() -> None:
    other = _numbers(1)
    first = _numbers(5)
    _load_one[(1,)](first, other, 0)
    with pytest.raises(OutsideStorageError):
        _load_one[(1,)](other, other, (first.data_ptr() - other.data_ptr()) // 4)


def test_storages_that_share_memory_are_one() -> None:
    whole = _numbers(8)
    part = torch.from_numpy(whole.numpy()[2:4])
    memory = LaunchMemory("shared", [("whole", whole), ("part", part)])
    last = whole.numpy().ctypes.data + 28
    addresses = torch.tensor([part.data_ptr(), last]).numpy().view("uint64")
    memory.check("load", addresses, None, 4)
    with pytest.raises(OutsideStorageError, match="4 bytes past the end of whole"):
        memory.check("load", addresses + addresses.dtype.type(4), None, 4)
