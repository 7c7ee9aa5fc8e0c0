"""Prefill as a GPU does it, with torch's ops on a CPU, against the CPU's own: lengths, residents, slots, cancelling."""

from pathlib import Path

import pytest

from tests.support import prefill_checks
from tests.support.engine_driver import EngineDriver
from tests.support.random_engine import Size, random_engine


@pytest.fixture(scope="module")
def as_on_cuda() -> EngineDriver:
    return random_engine("as on cuda", Size(), num_threads=1)


@pytest.fixture(scope="module")
def on_cpu() -> EngineDriver:
    return random_engine("cpu", Size(), num_threads=1)


@pytest.mark.parametrize("num_tokens", [1, 2, 63, 64, 65, 127, 700])
def test_every_length_is_the_cpus(
    as_on_cuda: EngineDriver, on_cpu: EngineDriver, num_tokens: int, tmp_path: Path
) -> None:
    prefill_checks.check_length(as_on_cuda, on_cpu, num_tokens, tmp_path)


def test_decode_slots_are_kept(as_on_cuda: EngineDriver) -> None:
    prefill_checks.check_decode_slots_are_kept(as_on_cuda, 700)


def test_cancelling_takes_one_chunk(as_on_cuda: EngineDriver) -> None:
    prefill_checks.check_cancelling_takes_one_chunk(as_on_cuda, 400)


def test_chunks_end_where_they_may(as_on_cuda: EngineDriver, tmp_path: Path) -> None:
    """Another length of chunk changes round-off alone: what a card's kernels do to the CPU's numbers, and no more."""
    other = random_engine("cpu", Size(chunk_tokens=100), num_threads=1)
    found = prefill_checks.check_length(as_on_cuda, other, 650, tmp_path, has_same_chunks=False)
    assert found["largest"] > 0.0
