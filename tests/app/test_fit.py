"""No verdict "fits" is one that the budget, or the disk, then refuses: over random machines and every known model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.fit import FitJudge
from app.library import bytes_to_fetch, describe_model, list_remotes
from app.locations import DEMO_MODEL, Locations, asset_path
from runtime.errors import BudgetError
from runtime.memory.budget import RAM_MARGIN_BYTES, Machine, plan
from runtime.memory.rates import TYPICAL, RatesQuestion, keep_rates
from runtime.memory.residents import ResidentFile, ResidentSet
from runtime.options import EngineOptions
from tests.support.command_line import run_hotslot

GIB = 1 << 30
REMOTES = [remote for remote in list_remotes(Locations.resolve()) if remote.spec is not None]
MACHINES = [(12, 32), (16, 64), (16, 128), (24, 64), (32, 192)]
sizes = st.floats(0.05, 1.0).map(lambda share: share**3)
"""More small ones than large ones."""


def machine_of(device: str, vram_gib: float, ram_gib: float) -> Machine:
    vram_bytes = int(vram_gib * GIB) if device == "cuda" else None
    return Machine(device, vram_bytes, int(ram_gib * GIB), int(ram_gib * GIB), 8)


@settings(max_examples=150)
@given(
    remote=st.sampled_from(REMOTES),
    device=st.sampled_from(["cuda", "cpu"]),
    vram=sizes.map(lambda share: 96 * share),
    ram=sizes.map(lambda share: 512 * share),
    disk=sizes.map(lambda share: 400 * share),
    context=st.sampled_from([None, 1, 8192, 262_144, 300_000]),
    dense=st.sampled_from(["auto", "bf16", "fp8"]),
    more=st.tuples(st.floats(1, 3), st.floats(1, 3), st.floats(1, 3)),
)
def test_what_fits_is_never_refused(
    remote: object, device: str, vram: float, ram: float, disk: float, context: int | None, dense: str, more: tuple
) -> None:  # type: ignore[type-arg]
    spec = remote.spec  # type: ignore[attr-defined]
    to_fetch_bytes = bytes_to_fetch(remote)  # type: ignore[arg-type]
    machine, disk_bytes = machine_of(device, vram, ram), int(disk * GIB)
    options = EngineOptions(Path(), device=device, context_tokens=context, dense=dense)  # type: ignore[arg-type]
    fit = FitJudge(machine, options, disk_free_bytes=disk_bytes).judge(spec, to_fetch_bytes)
    budget = plan(spec, machine, options)
    if not fit.fits:
        assert any(character.isdigit() for character in fit.reason)
        assert fit.reason.isprintable()
        assert (fit.verdict, fit.speed) == ("no", None)
        assert fit.shortage.endswith(" missing") or (context is not None and context > spec.max_context_tokens)
        assert not budget.fits or to_fetch_bytes > disk_bytes
        if not budget.fits:
            with pytest.raises(BudgetError):
                budget.require()
        return
    budget.require()
    assert fit.num_slots == budget.num_slots >= spec.moe.num_experts_per_token
    assert to_fetch_bytes <= disk_bytes
    assert fit.is_store_mapped == budget.is_store_mapped == (fit.verdict == "with mapped experts")
    if device == "cuda":
        assert budget.device_bytes + budget.margin_bytes <= machine.vram_free_bytes  # type: ignore[operator]
        assert budget.host_bytes + RAM_MARGIN_BYTES <= machine.ram_available_bytes
    else:
        assert budget.total_bytes + RAM_MARGIN_BYTES <= machine.ram_available_bytes
    assert fit.speed is not None
    assert 0 < fit.speed.tok_s < 10_000
    larger = machine_of(device, vram * more[0], ram * more[1])
    judge = FitJudge(larger, options, disk_free_bytes=int(disk_bytes * more[2]))
    assert judge.judge(spec, to_fetch_bytes).fits, "more of everything is never too little"


@pytest.mark.parametrize(("vram", "ram"), MACHINES)
def test_named_machines_judge_the_whole_catalogue(vram: int, ram: int) -> None:
    judge = FitJudge(machine_of("cuda", vram, ram), EngineOptions(Path(), device="cuda"), disk_free_bytes=1000 * GIB)
    for remote in REMOTES:
        assert remote.spec is not None
        fit = judge.judge(remote.spec, bytes_to_fetch(remote))
        assert fit.verdict in ("yes", "with mapped experts", "no")
        speed = "" if fit.speed is None else f"{fit.speed.tok_s:.0f} tok/s"
        print(vram, ram, remote.name, fit.verdict, fit.num_slots, speed, fit.reason)


def test_the_list_judges_another_machine_and_its_disk() -> None:
    machine = ("--device", "cuda", "--vram", "16GiB", "--ram", "128GiB")
    roomy, full = (
        {model["name"]: model for model in json.loads(run_hotslot("models", "list", *machine, *disk, "--json").out)}
        for disk in (("--disk", "2000GiB"), ("--disk", "40GiB"))
    )
    flagship = roomy["qwen3.8-flash-next"]
    assert (flagship["fits"], flagship["fit_verdict"], flagship["to_fetch_bytes"]) == (True, "yes", 135_253_622_894)
    assert flagship["predicted_tok_s"] > 5
    assert "% of routed experts have a slot" in flagship["predicted_why"]
    assert "not measured here" in flagship["predicted_why"]
    assert not full["qwen3.8-flash-next"]["fits"]
    assert (
        "needs 126 GiB more of the disk, but only 40 GiB are free; free 86 GiB"
        in (full["qwen3.8-flash-next"]["fit_reason"])
    )
    assert full["qwen3.8-flash-next"]["fit_shortage"] == "86 GiB of disk missing"
    assert full["qwen3.6-35b"]["fits"]
    assert full["demo"]["fits"], "it is here"
    table = run_hotslot("models", "list", *machine, "--disk", "40GiB").out
    assert "no, 86 GiB of disk missing" in table
    assert "tok/s" in next(line for line in table.splitlines() if line.startswith("qwen3.6-35b "))


def test_a_live_hit_rate_and_measured_rates_are_used(tmp_path: Path) -> None:
    model = describe_model("demo", asset_path(DEMO_MODEL))
    assert model.spec is not None
    options = EngineOptions(Path(), device="cpu", num_slots=96)
    machine = machine_of("cpu", 0, 16)
    judge = FitJudge(machine, options, cache_dir=tmp_path)
    fit = judge.judge(model.spec, fingerprint=model.fingerprint)
    assert fit.speed is not None
    assert "as in the demo model's own traces" in fit.speed.why
    moe = model.spec.moe
    file = ResidentFile.of(tmp_path, model.fingerprint, model.spec.num_layers, moe.num_experts)

    file.write(ResidentSet("rule", np.arange(96), {}, 96, 0.625))
    measured = replace(TYPICAL["cpu"], origin="measured here on 2026-01-02")
    keep_rates(RatesQuestion.of(model.spec, "cpu", machine.num_cores), measured, tmp_path)
    live = judge.judge(model.spec, fingerprint=model.fingerprint).speed
    assert live is not None
    assert live.hit_rate.value == 0.625
    assert "62% of routed experts have a slot (as last seen here)" in live.why
    assert "measured here on 2026-01-02" in live.why
    other = FitJudge(machine, replace(options, num_slots=192), cache_dir=tmp_path)
    elsewhere = other.judge(model.spec, fingerprint=model.fingerprint).speed
    assert elsewhere is not None
    assert elsewhere.hit_rate.value == pytest.approx(0.753)
