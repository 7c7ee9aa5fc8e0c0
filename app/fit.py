"""Whether a model runs on a machine, and how fast: the planner's verdict, room on the disk, predicted speed."""

from dataclasses import dataclass
from pathlib import Path

from app.figures import size_text
from runtime.memory.budget import RAM_MARGIN_BYTES, plan
from runtime.memory.budget_plan import BudgetPlan, Machine
from runtime.memory.rates import MachineRates, RatesQuestion, known_rates, typical_rates
from runtime.memory.speed import Forecast, HitRate, forecast
from runtime.options import EngineOptions
from runtime.spec import ModelSpec


@dataclass(frozen=True)
class Fit:
    """Whether a model runs on a machine; `reason` says why not, with numbers."""

    fits: bool
    reason: str
    num_slots: int
    total_bytes: int
    is_store_mapped: bool
    """It fits only with its experts on the disk."""
    to_fetch_bytes: int = 0
    """What is still to come over the network and needs room on the disk."""
    speed: Forecast | None = None
    """None where it doesn't fit."""
    shortage: str = ""
    """Where it doesn't, what is missing in a few words: '3.1 GiB of VRAM missing'."""

    @property
    def verdict(self) -> str:
        """yes, with mapped experts, or no."""
        return "no" if not self.fits else "with mapped experts" if self.is_store_mapped else "yes"


class FitJudge:
    """Judges models for one machine and the options that an engine would get.

    `disk_free_bytes` is that of the models' disk, None where the disk is no question; `rates` are the machine's, else
    those that were measured before, else typical ones.
    """

    def __init__(
        self,
        machine: Machine,
        options: EngineOptions,
        *,
        disk_free_bytes: int | None = None,
        cache_dir: Path | None = None,
        rates: MachineRates | None = None,
    ) -> None:
        self.machine = machine
        self._options, self._disk_free_bytes = options, disk_free_bytes
        self._cache_dir, self._rates = cache_dir, rates

    def judge(self, spec: ModelSpec, to_fetch_bytes: int = 0, fingerprint: str = "") -> Fit:
        """By the plan that the engine allocates by, so that no verdict differs from what it then does.

        `fingerprint` is that of a model that is here: its own hit rate counts, if it has one.
        """
        return self.judge_plan(spec, plan(spec, self.machine, self._options), to_fetch_bytes, fingerprint)

    def judge_plan(self, spec: ModelSpec, budget: BudgetPlan, to_fetch_bytes: int = 0, fingerprint: str = "") -> Fit:
        """The same of a plan that is there already."""
        reason = budget.reason or self._lack_of_disk(spec, to_fetch_bytes)
        speed = None
        if not reason:
            speed = forecast(spec, budget, self._rates_of(spec), self._live_hit_rate(spec, budget, fingerprint))
        return Fit(
            not reason,
            reason,
            budget.num_slots,
            budget.total_bytes,
            budget.is_store_mapped,
            to_fetch_bytes,
            speed,
            self._shortage(spec, budget, to_fetch_bytes) if reason else "",
        )

    def _shortage(self, spec: ModelSpec, budget: BudgetPlan, to_fetch_bytes: int) -> str:
        slots_bytes = max(0, spec.moe.num_experts_per_token - budget.num_slots) * budget.slot_bytes
        limit_bytes, is_cuda = budget.limit_bytes, budget.device == "cuda"
        held_bytes = budget.host_bytes if is_cuda else budget.total_bytes + slots_bytes
        missing = {
            "memory": held_bytes + RAM_MARGIN_BYTES - self.machine.ram_available_bytes,
            "VRAM": 0 if limit_bytes is None else budget.device_bytes + budget.margin_bytes + slots_bytes - limit_bytes,
            "disk": 0 if self._disk_free_bytes is None else to_fetch_bytes - self._disk_free_bytes,
        }
        return ", ".join(f"{size_text(size)} of {name} missing" for name, size in missing.items() if size > 0)

    def _lack_of_disk(self, spec: ModelSpec, to_fetch_bytes: int) -> str:
        free_bytes = self._disk_free_bytes
        if free_bytes is None or to_fetch_bytes <= free_bytes:
            return ""
        missing = size_text(to_fetch_bytes - free_bytes)
        return (
            f"{spec.name} needs {size_text(to_fetch_bytes)} more of the disk, but only {size_text(free_bytes)} are "
            f"free; free {missing} of it, or choose a smaller model."
        )

    def _rates_of(self, spec: ModelSpec) -> MachineRates:
        if self._rates is not None:
            return self._rates
        question = RatesQuestion.of(spec, self.machine.device, self.machine.num_cores)
        known = known_rates(question, self._cache_dir) if self._cache_dir is not None else None
        return known or typical_rates(question)

    def _live_hit_rate(self, spec: ModelSpec, budget: BudgetPlan, fingerprint: str) -> HitRate | None:
        """What an engine with so many slots had in the end."""
        if self._cache_dir is None or not fingerprint:
            return None
        # Brings numpy, which those who ask about no model of this machine need not wait for.
        from runtime.memory.residents import ResidentFile

        residents = ResidentFile.of(self._cache_dir, fingerprint, spec.num_layers, spec.moe.num_experts).peek()
        if residents is None or residents.hit_rate is None or residents.num_slots != budget.num_slots:
            return None
        return HitRate(residents.hit_rate, "as last seen here")
