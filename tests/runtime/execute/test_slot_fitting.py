"""How many slots are left for, by what a warm-up measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.benches.synthetic import FLAGSHIP, synthetic_spec
from runtime.errors import BudgetError
from runtime.execute.slot_fitting import HeldMemory, fit_slots, fitting_slots, with_fewest_slots
from runtime.memory.budget import plan
from runtime.memory.budget_plan import BudgetPlan, Machine
from runtime.memory.sizes import long_step_bytes
from runtime.options import EngineOptions
from runtime.spec import ModelSpec

GIB = 2**30
OPTIONS = EngineOptions(Path("m"), context_tokens=32_768)


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return synthetic_spec(FLAGSHIP, 48)


@pytest.fixture(scope="module")
def budget(spec: ModelSpec) -> BudgetPlan:
    machine = Machine("cuda", 15_900 * 2**20, 192 * GIB, 180 * GIB, 8)
    return plan(spec, machine, OPTIONS).require()


def test_a_warm_up_that_took_what_was_planned_leaves_the_planned_slots(spec: ModelSpec, budget: BudgetPlan) -> None:
    few = with_fewest_slots(budget, spec)
    assert few.num_slots == 4 * spec.moe.num_experts_per_token
    tensors = budget.device_bytes - budget.context_bytes - budget.slots_bytes + few.num_slots * budget.slot_bytes
    held = HeldMemory(tensors, budget.context_bytes)
    assert fitting_slots(budget, few.num_slots, held, 0) == budget.num_slots
    more = replace(held, driver_bytes=held.driver_bytes + 10 * budget.slot_bytes)
    assert fitting_slots(budget, few.num_slots, more, 0) == budget.num_slots - 10
    assert fitting_slots(budget, few.num_slots, held, 7 * budget.slot_bytes) == budget.num_slots - 7


class _Slots:
    """As much of the experts as fitting looks at."""

    def __init__(self, num_slots: int, fewest_slots: int) -> None:
        self.cache, self.num_slots, self.fewest_slots = self, num_slots, fewest_slots

    def resize(self, num_slots: int) -> None:
        self.num_slots = num_slots


def test_a_long_step_has_its_room_though_no_warm_up_runs_one(spec: ModelSpec, budget: BudgetPlan) -> None:
    held, found = HeldMemory(budget.device_bytes // 2, budget.context_bytes), []
    for num_step_chunks in (1, 16):
        slots = _Slots(40, 40)
        fitted = fit_slots(slots, replace(budget, num_step_chunks=num_step_chunks), spec, OPTIONS, held)  # type: ignore[arg-type]
        assert fitted.num_slots == slots.num_slots
        found.append(fitted.num_slots)
    step_bytes = long_step_bytes(spec, 15 * OPTIONS.chunk_tokens, 4)
    assert found[0] - found[1] in (step_bytes // budget.slot_bytes, step_bytes // budget.slot_bytes + 1)


def test_too_little_for_the_fewest_is_refused_with_numbers(spec: ModelSpec, budget: BudgetPlan) -> None:
    held = HeldMemory(budget.device_bytes, budget.context_bytes)
    with pytest.raises(BudgetError, match=r"MiB more of the GPU than the plan foresaw; set a shorter --context"):
        fit_slots(_Slots(40, 40), budget, spec, OPTIONS, held)  # type: ignore[arg-type]
