"""Predicted speed: adds up, follows slots and bandwidths, and meets what was measured."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.library import read_catalogue
from runtime.benches.machine_rates import measure
from runtime.benches.synthetic import FLAGSHIP, synthetic_spec
from runtime.memory.budget import Machine, plan
from runtime.memory.budget_plan import BudgetPlan
from runtime.memory.rates import (
    TYPICAL,
    UNIT_IN_ORDER_S,
    MachineRates,
    RatesQuestion,
    card_rates,
    keep_rates,
    known_rates,
)
from runtime.memory.speed import DEMO_CURVE, PUBLISHED_CURVE, HitRate, expected_hit_rate, forecast
from runtime.options import EngineOptions
from runtime.spec import ModelSpec

REPO = Path(__file__).resolve().parents[3]
GIB = 1 << 30
H200 = card_rates(4253.6e9, 55.27e9, "an H200", True)
H200_IN_ORDER = replace(H200, unit_s=UNIT_IN_ORDER_S)
"""As it was measured when every launch waited for the end of the one before."""
FLAGSHIP_SPEC = synthetic_spec(FLAGSHIP, 48)
SPECS = [model.spec for model in read_catalogue() if model.spec is not None]


def planned(spec: ModelSpec, num_slots: int, **changes: object) -> BudgetPlan:
    options = EngineOptions(Path(), device="cuda", num_slots=num_slots)
    machine = Machine("cuda", 140 * GIB, 256 * GIB, 250 * GIB, 16)
    return plan(spec, machine, replace(options, **changes)).require()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rates", "num_slots", "hit_rate", "measured_s"),
    [
        (H200, 1650, 0.575, 0.01612),
        (H200, 3072, 0.67, 0.01417),
        (H200, 6144, 0.81, 0.01042),
        (H200_IN_ORDER, 1650, 0.216, 0.0282),
        (H200_IN_ORDER, 1650, 0.57, 0.01824),
        (H200_IN_ORDER, 3072, 0.67, 0.01547),
        (H200_IN_ORDER, 6144, 0.81, 0.01174),
    ],
)
def test_meets_steps_that_were_measured_on_an_h200(
    rates: MachineRates, num_slots: int, hit_rate: float, measured_s: float
) -> None:
    """`scripts/bench_prediction.py flagship`, or `hotslot bench decode`; one row, overlap shared."""
    found = forecast(FLAGSHIP_SPEC, planned(FLAGSHIP_SPEC, num_slots), rates, HitRate(hit_rate, "as injected"))
    assert found.step_s == pytest.approx(measured_s, rel=0.1)


@given(
    st.sampled_from(SPECS),
    st.integers(4, 30_000),
    st.integers(4, 30_000),
    st.sampled_from([H200, TYPICAL["cuda"]]),
)
def test_more_slots_are_never_slower(spec: ModelSpec, one: int, other: int, rates: MachineRates) -> None:
    num_experts = spec.num_layers * spec.moe.num_experts
    fewer, more = sorted(max(spec.moe.num_experts_per_token, min(count, num_experts)) for count in (one, other))
    budget = planned(spec, spec.moe.num_experts_per_token)
    slow, fast = (forecast(spec, replace(budget, num_slots=count), rates) for count in (fewer, more))
    assert 0 <= slow.hit_rate.value <= fast.hit_rate.value <= 1
    assert 0 < slow.tok_s <= fast.tok_s
    for found in (slow, fast):
        assert found.step_s == pytest.approx(found.dense_s + found.experts_s + found.misses_s + found.small_s)
        assert f"{found.hit_rate.value:.0%}" in found.why
        assert rates.origin in found.why
        assert found.why.isprintable()


@pytest.mark.parametrize("curve", [DEMO_CURVE, PUBLISHED_CURVE])
def test_curves_rise_from_nothing_to_all(curve: tuple[tuple[float, float], ...]) -> None:
    assert (curve[0], curve[-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert list(curve) == sorted(curve)
    assert [rate for _, rate in curve] == sorted(rate for _, rate in curve)


def test_curve_by_kind_of_model() -> None:
    assert expected_hit_rate(FLAGSHIP_SPEC, 1650).value == pytest.approx(0.57, abs=0.01)
    assert expected_hit_rate(FLAGSHIP_SPEC, 24_576) == HitRate(1.0, "all have one")
    live = HitRate(0.61, "live")
    assert forecast(FLAGSHIP_SPEC, planned(FLAGSHIP_SPEC, 1650), H200, live).hit_rate == live


def test_fp8_reads_half_and_is_faster() -> None:
    budgets = [planned(FLAGSHIP_SPEC, 1650, dense=dense) for dense in ("bf16", "fp8")]
    wide, narrow = (forecast(FLAGSHIP_SPEC, budget, H200) for budget in budgets)
    assert narrow.dense_s < 0.7 * wide.dense_s
    assert narrow.tok_s > wide.tok_s


def test_rates_are_kept_with_their_question(tmp_path: Path) -> None:
    question = RatesQuestion("cpu", 384, 96, 4, "nvfp4", 1)
    assert known_rates(question, tmp_path) is None
    keep_rates(question, TYPICAL["cpu"], tmp_path)
    assert known_rates(question, tmp_path) == TYPICAL["cpu"]
    assert known_rates(replace(question, hidden_size=400), tmp_path) is None
    [path] = (tmp_path / "rates").iterdir()
    for content in (b"", b"[]", b'{"dense_bytes_s": 1}', path.read_bytes().replace(b"9000000000.0", b"-1.0")):
        path.write_bytes(content)
        assert known_rates(question, tmp_path) is None
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    keep_rates(question, TYPICAL["cpu"], tmp_path)
    assert known_rates(question, tmp_path) is None


def test_rates_of_this_machine_are_plausible() -> None:
    rates = measure(RatesQuestion("cpu", 384, 96, 4, "nvfp4", 1))
    typical = TYPICAL["cpu"]
    for name in ("dense_bytes_s", "expert_bytes_s", "copy_bytes_s", "unit_s"):
        assert 0.02 < getattr(rates, name) / getattr(typical, name) < 50, name
    assert rates.origin.startswith("measured here on ")


@pytest.mark.long
@pytest.mark.speed
def test_demo_is_within_a_quarter_at_three_slot_counts() -> None:
    command = [sys.executable, str(REPO / "scripts" / "bench_prediction.py"), "demo", "--clock", "cpu"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    arms = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(arms) == 3, run.stderr
    assert all(abs(arm["off"]) <= 0.25 for arm in arms), arms
