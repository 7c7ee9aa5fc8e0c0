"""Page and state pools: their sizes are what they say, copies copy all and touch nothing else."""

from pathlib import Path

import pytest
import torch

from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.families.registry import read_spec
from runtime.memory.budget import ACTIVATION_BYTES
from runtime.memory.sizes import index_key_page_bytes, kv_page_bytes, state_row_bytes
from runtime.spec import ModelSpec
from tests.support.tiny_models import BREAK_ID, CONFIGS, tiny_config


@pytest.fixture(params=CONFIGS)
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> ModelSpec:
    return read_spec(tiny_config(**CONFIGS[request.param]).to_dict(), str(tmp_path))


def test_pools_hold_exactly_the_bytes_that_are_planned(spec: ModelSpec) -> None:
    for dtype in (torch.float16, torch.float32):
        page_bytes = kv_page_bytes(spec, dtype.itemsize) + index_key_page_bytes(spec, dtype.itemsize)
        assert PagePool(spec, 5, "cpu", dtype).num_bytes == 5 * page_bytes
    assert StatePool(spec, 3, "cpu").num_bytes == 3 * state_row_bytes(spec, ACTIVATION_BYTES)


def test_copying_a_page_copies_all_of_it_and_nothing_else(spec: ModelSpec) -> None:
    pool = PagePool(spec, 3, "cpu", torch.float32)
    for tensor in (pool.keys, pool.values, pool.index_keys):
        assert tensor is not None
        tensor.normal_()
    before = [pool.keys.clone(), pool.values.clone(), pool.index_keys.clone() if pool.index_keys is not None else None]
    pool.copy_page(0, 2)
    for tensor, old in zip((pool.keys, pool.values, pool.index_keys), before, strict=True):
        assert tensor is not None
        assert old is not None
        assert torch.equal(tensor[:, 2], old[:, 0])
        assert torch.equal(tensor[:, :2], old[:, :2])


def test_flat_views_share_the_pages_memory(spec: ModelSpec) -> None:
    pool = PagePool(spec, 2, "cpu", torch.float32)
    pool.keys_flat[0, 64 + 3] = 1.0
    assert bool((pool.keys[0, 1, 3] == 1.0).all())


def test_reset_is_the_state_before_the_first_token(spec: ModelSpec) -> None:
    pool = StatePool(spec, 2, "cpu")
    fresh = snapshot(pool, 0)
    fill(pool)
    pool.reset(1)
    assert all(torch.equal(a, b) for a, b in zip(snapshot(pool, 1), fresh, strict=True))
    if spec.ngram is not None:
        assert pool.last_ids[1].unique().tolist() == [BREAK_ID]


def test_copying_a_row_copies_all_of_it_and_nothing_else(spec: ModelSpec) -> None:
    pool = StatePool(spec, 3, "cpu")
    fill(pool)
    source, other = snapshot(pool, 0), snapshot(pool, 1)
    pool.copy(0, 2)
    assert all(torch.equal(a, b) for a, b in zip(snapshot(pool, 2), source, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(snapshot(pool, 1), other, strict=True))


def fill(pool: StatePool) -> None:
    for tensor in (pool.recurrent, pool.conv, pool.ngram_conv, pool.pending_index_keys):
        tensor.normal_()
    pool.last_ids.random_(0, 50)


def snapshot(pool: StatePool, row: int) -> list[torch.Tensor]:
    layered = (pool.recurrent, pool.conv, pool.ngram_conv, pool.pending_index_keys)
    return [tensor[:, row].clone() for tensor in layered] + [pool.last_ids[row].clone()]
