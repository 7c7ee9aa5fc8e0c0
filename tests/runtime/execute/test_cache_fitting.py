"""The host cache gets what a process leaves once it has run: never more than planned, and a refusal with numbers where
not even what a step needs is left."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from runtime.errors import BudgetError
from runtime.execute.cache_fitting import GROWTH_BYTES, fit_cache, fitting_records
from runtime.execute.opened_model import ModelFolder
from runtime.experts.mapped_store import MappedStore
from runtime.memory.budget import RAM_MARGIN_BYTES, fewest_cached_records, plan
from runtime.memory.budget_plan import BudgetPlan, Machine
from runtime.memory.sizes import cached_record_bytes
from runtime.options import EngineOptions
from runtime.record import RecordLayout
from runtime.spec import ModelSpec
from tests.support.engine_driver import DEMO_FOLDER

GIB = 1 << 30
OTHERS_BYTES = GIB


@pytest.fixture(scope="module")
def model() -> ModelFolder:
    return ModelFolder(DEMO_FOLDER)


def planned(spec: ModelSpec, num_cached: int) -> BudgetPlan:
    machine = Machine("cuda", 8 * GIB, 64 * GIB, 64 * GIB, 8, 0, 0)
    budget = plan(spec, machine, EngineOptions(DEMO_FOLDER, device="cuda", context_tokens=256))
    return replace(budget, num_cached_records=num_cached, is_store_mapped=True)


def machine_with_room_for(spec: ModelSpec, num_records: int) -> Machine:
    held = OTHERS_BYTES + GROWTH_BYTES + RAM_MARGIN_BYTES
    ram_bytes = held + num_records * cached_record_bytes(spec)
    return Machine("cuda", 8 * GIB, ram_bytes, ram_bytes, 8, 0, 0)


def test_states_of_before_a_long_step_have_their_room(model: ModelFolder) -> None:
    saved = replace(planned(model.spec, 300), saved_state_bytes=3 * cached_record_bytes(model.spec))
    assert fitting_records(saved, model.spec, machine_with_room_for(model.spec, 200), OTHERS_BYTES) == 197


@pytest.mark.parametrize(("num_room", "num_planned", "expected"), [(200, 300, 200), (300, 200, 200), (130, 200, 130)])
def test_what_is_left_and_no_more_than_planned(
    model: ModelFolder, num_room: int, num_planned: int, expected: int
) -> None:
    budget, machine = planned(model.spec, num_planned), machine_with_room_for(model.spec, num_room)
    assert fitting_records(budget, model.spec, machine, OTHERS_BYTES) == expected


def test_the_store_is_as_large_as_the_plan_says_then(model: ModelFolder, tmp_path: Path) -> None:
    layouts, num_experts = RecordLayout.of_layers(model.spec), model.spec.moe.num_experts
    reader, _ = model.open_records(tmp_path, lambda done, total: None)
    store = MappedStore(reader, layouts, num_experts, 8)
    before = store.record(0, 3).clone()
    # Some are on their way while the cache moves.
    store.announce(1, [0, 1, 2])
    budget = planned(model.spec, 300)
    fitted = fit_cache(store, budget, model.spec, machine_with_room_for(model.spec, 140), OTHERS_BYTES)
    assert fitted.num_cached_records == store.cache.num_records == 140
    assert fitted.store_bytes == store.num_bytes
    assert budget.host_bytes - fitted.host_bytes == budget.store_bytes - fitted.store_bytes
    store.check_integrity()
    assert torch.equal(store.record(0, 3), before)


def test_too_little_for_a_step_is_refused(model: ModelFolder, tmp_path: Path) -> None:
    layouts, num_experts = RecordLayout.of_layers(model.spec), model.spec.moe.num_experts
    store = MappedStore(model.open_records(None, lambda done, total: None)[0], layouts, num_experts, 8)
    budget = planned(model.spec, 300)
    fewest = fewest_cached_records(model.spec, budget.num_ring_slots)
    with pytest.raises(BudgetError, match="more of main memory than the plan foresaw"):
        fit_cache(store, budget, model.spec, machine_with_room_for(model.spec, fewest - 1), OTHERS_BYTES)
    assert store.cache.num_records == 8
