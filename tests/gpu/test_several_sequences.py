"""Several sequences on a GPU: each says what it says alone, whoever joins and leaves, and none leaves anything."""

import pytest

from runtime.options import EngineOptions
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver
from tests.support.random_engine import Size, random_engine
from tests.support.sequences import check_concurrent_texts, check_joins_and_leaves, check_random_operations, forget


@pytest.fixture(scope="module")
def demo() -> EngineDriver:
    return EngineDriver(EngineOptions(DEMO_FOLDER, device="cuda", num_slots=96, context_tokens=2048, chunk_tokens=64))


@pytest.fixture(scope="module")
def small() -> EngineDriver:
    return random_engine("cuda", Size(num_experts=128, num_slots=250, context_tokens=512))


@pytest.fixture(params=["demo", "small"])
def driver(request: pytest.FixtureRequest) -> EngineDriver:
    found: EngineDriver = request.getfixturevalue(request.param)
    forget(found)
    return found


def test_texts_of_concurrent_chats_are_those_of_each_alone(driver: EngineDriver) -> None:
    check_concurrent_texts(driver)


def test_who_joins_and_leaves_does_not_change_a_text(driver: EngineDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    check_joins_and_leaves(driver, monkeypatch)


def test_random_operations_leave_no_page_slot_state_or_row_behind(small: EngineDriver) -> None:
    check_random_operations(small, 300)
