"""How fast a plan will decode: bytes over bandwidths, plus what a step costs whatever it reads. Pure arithmetic.

One token of one sequence at a short context:

    step = dense bytes / reading rate + routed experts' bytes / expert rate + missed bytes / copying rate
         + bytes from the disk / disk rate + small work

Small work is counted in units, per kind of block. On a CPU a unit is the time of a small torch operation, and the
numbers are those of operations in the decoder. On a GPU it is a microsecond on an H200, from the profile of `hotslot
bench decode` at the geometry of Qwen3.8-Flash-Next. The hit rate is a live one if there is one, else a curve's.
"""

from dataclasses import dataclass
from itertools import pairwise

from runtime.memory.budget_plan import BudgetPlan
from runtime.memory.rates import MachineRates
from runtime.record import RecordLayout
from runtime.spec import ModelSpec

DEMO_CURVE = ((0.0, 0.0), (0.125, 0.339), (0.25, 0.53), (0.375, 0.661), (0.5, 0.753), (0.75, 0.908), (1.0, 1.0))
"""Hit rate by share of the experts that have slots: the demo model's own traces under `rule` (README, Figures)."""
PUBLISHED_CURVE = ((0.0, 0.0), (0.067, 0.57), (0.125, 0.67), (0.25, 0.81), (0.5, 0.94), (1.0, 1.0))
"""The same as published for Qwen models of 128 and 512 experts on mixed text."""
_MANY_EXPERTS = 128
_CURVE_NAMES = {DEMO_CURVE: "as in the demo model's own traces", PUBLISHED_CURVE: "as published for Qwen models"}


@dataclass(frozen=True)
class UnitCosts:
    """Units of small work: of a layer's mixer by kind, of the residual around a block, of the rest."""

    linear_attention: float
    sparse_attention: float
    full_attention: float
    hyper_block: float
    plain_block: float
    moe: float
    ngram: float
    step: float

    def of(self, spec: ModelSpec) -> float:
        """Units of one decode step."""
        block = self.plain_block if spec.hyper_connection is None else self.hyper_block
        mixers = sum(float(getattr(self, kind)) for kind in spec.layer_kinds)
        num_ngram_layers = len(spec.ngram.layer_indices) if spec.ngram is not None else 0
        return mixers + spec.num_layers * (self.moe + 2 * block) + num_ngram_layers * self.ngram + self.step


CPU_UNITS = UnitCosts(
    linear_attention=235, sparse_attention=205, full_attention=135, hyper_block=70, plain_block=26, moe=130, ngram=250,
    step=400,
)  # fmt: skip
CUDA_UNITS = UnitCosts(
    linear_attention=12, sparse_attention=20, full_attention=16, hyper_block=5, plain_block=3, moe=21, ngram=20,
    step=40,
)  # fmt: skip


@dataclass(frozen=True)
class HitRate:
    """Of decode, and where it is from, in words for a person."""

    value: float
    origin: str


@dataclass(frozen=True)
class Forecast:
    """Seconds of one decode step by what they are spent on, and the assumptions."""

    dense_s: float
    experts_s: float
    misses_s: float
    disk_s: float
    """Of the missed experts, those that are not in main memory either; 0 where all are."""
    small_s: float
    hit_rate: HitRate
    rates: MachineRates

    @property
    def step_s(self) -> float:
        return self.dense_s + self.experts_s + self.misses_s + self.disk_s + self.small_s

    @property
    def tok_s(self) -> float:
        """Of one chat."""
        return 1.0 / self.step_s

    @property
    def why(self) -> str:
        """One line: what the figure assumes."""
        hits, rates = self.hit_rate, self.rates
        return (
            f"{hits.value:.0%} of routed experts have a slot ({hits.origin}); missing ones are copied at "
            f"{rates.copy_bytes_s / 1e9:.1f} GB/s, dense weights read at {rates.dense_bytes_s / 1e9:.0f} GB/s "
            f"({rates.origin}){self._disk_why}"
        )

    @property
    def _disk_why(self) -> str:
        if not self.disk_s:
            return ""
        share = self.disk_s / self.step_s
        return f"; {share:.0%} of the time goes to the disk, at {self.rates.disk_bytes_s / 1e9:.1f} GB/s"


def forecast(spec: ModelSpec, budget: BudgetPlan, rates: MachineRates, live: HitRate | None = None) -> Forecast:
    """What a plan that fits will do. `live` is the hit rate that was measured with this plan's number of slots."""
    hit_rate = live or expected_hit_rate(spec, budget.num_slots)
    routed_bytes = spec.moe.num_experts_per_token * sum(layout.record_bytes for layout in RecordLayout.of_layers(spec))
    units = CUDA_UNITS if budget.device == "cuda" else CPU_UNITS
    return Forecast(
        dense_s=dense_read_bytes(spec, budget) / rates.dense_bytes_s,
        experts_s=routed_bytes / rates.expert_bytes_s,
        misses_s=(1.0 - hit_rate.value) * routed_bytes / rates.copy_bytes_s,
        disk_s=_disk_share(spec, budget) * routed_bytes / rates.disk_bytes_s,
        small_s=units.of(spec) * rates.unit_s,
        hit_rate=hit_rate,
        rates=rates,
    )


def _disk_share(spec: ModelSpec, budget: BudgetPlan) -> float:
    """Of routed experts, those that lie neither in a slot nor in the host cache of a mapped store."""
    if not budget.is_store_mapped:
        return 0.0
    return 1.0 - expected_hit_rate(spec, budget.num_slots + budget.num_cached_records).value


def dense_read_bytes(spec: ModelSpec, budget: BudgetPlan) -> int:
    """What one step reads of the dense weights: all but the embedding, of which it reads a row."""
    embedding = 0 if spec.ties_embeddings else spec.vocab_size * spec.hidden_size
    return budget.dense_bytes * (spec.weights.dense_params - embedding) // max(1, spec.weights.dense_params)


def expected_hit_rate(spec: ModelSpec, num_slots: int) -> HitRate:
    """From a curve, by the share of all experts that have slots."""
    share = min(1.0, num_slots / (spec.num_layers * spec.moe.num_experts))
    if share == 1.0:
        return HitRate(1.0, "all have one")
    curve = PUBLISHED_CURVE if spec.moe.num_experts >= _MANY_EXPERTS else DEMO_CURVE
    return HitRate(_interpolated(curve, share), f"{share:.0%} of all fit, {_CURVE_NAMES[curve]}")


def _interpolated(curve: tuple[tuple[float, float], ...], share: float) -> float:
    for (left, low), (right, high) in pairwise(curve):
        if share <= right:
            return low + (high - low) * (share - left) / (right - left)
    return 1.0
