"""Gives expert slots the memory that is left once everything else is there: measured after a warm-up, not guessed.

The warm-up runs with as few slots as decode needs. What it did not run, a longer context than its own, is added by the
planner's formula.
"""

import logging
from dataclasses import dataclass, replace

import torch

from runtime.errors import BudgetError
from runtime.execute.warm_up import warmed_tokens
from runtime.experts.device_routed import DeviceExperts
from runtime.memory.budget_plan import BudgetPlan
from runtime.memory.sizes import device_workspace_bytes, format_size, long_step_bytes
from runtime.options import EngineOptions
from runtime.spec import ModelSpec

_MOST_DRIVER_GROWTH_BYTES = 256 << 20
"""More than kernels and graphs of all rows were ever seen to take beside the context."""
_logger = logging.getLogger("hotslot.engine")


@dataclass(frozen=True)
class HeldMemory:
    """What a process takes from the device, expert slots and all."""

    tensor_bytes: int
    """Of torch's allocator, at its peak."""
    driver_bytes: int
    """Of the driver for this process: context, kernels, graphs."""


def with_fewest_slots(budget: BudgetPlan, spec: ModelSpec) -> BudgetPlan:
    """The plan for the warm-up."""
    return replace(budget, num_slots=min(budget.num_slots, budget.max_sequences * spec.moe.num_experts_per_token))


def begin_measuring() -> None:
    """What loading took and gave back does not count."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def held_memory(free_before_bytes: int, context_bytes: int, budget: BudgetPlan) -> HeldMemory:
    """After the warm-up. `free_before_bytes` were free before this process took anything, `context_bytes` of which went
    when it began."""
    torch.cuda.synchronize()
    free_bytes, _ = torch.cuda.mem_get_info()
    driver_bytes = free_before_bytes - free_bytes - torch.cuda.memory_reserved()
    # Other processes may have taken memory, or given it back, meanwhile.
    driver_bytes = min(max(context_bytes, driver_bytes), budget.context_bytes + _MOST_DRIVER_GROWTH_BYTES)
    return HeldMemory(torch.cuda.max_memory_reserved(), driver_bytes)


def fitting_slots(budget: BudgetPlan, num_slots_now: int, held: HeldMemory, unwarmed_bytes: int) -> int:
    """How many slots the limit leaves beside what else is held and the margin; negative where that alone is too much.

    `unwarmed_bytes`: what the widest step takes beyond the widest of the warm-up.
    """
    assert budget.limit_bytes is not None
    others = held.tensor_bytes - num_slots_now * budget.slot_bytes + held.driver_bytes + unwarmed_bytes
    return (budget.limit_bytes - budget.margin_bytes - others) // budget.slot_bytes


def fit_slots(
    experts: DeviceExperts, budget: BudgetPlan, spec: ModelSpec, options: EngineOptions, held: HeldMemory
) -> BudgetPlan:
    """Resize the slots to what fits; decode steps must be built again. Returns the plan with that number.

    Raises BudgetError where not even the fewest fit.
    """
    chunk, context = warmed_tokens(options.chunk_tokens, budget.context_tokens)
    unwarmed_bytes = device_workspace_bytes(spec, options.chunk_tokens, budget.context_tokens)
    unwarmed_bytes -= device_workspace_bytes(spec, chunk, context)
    unwarmed_bytes += long_step_bytes(spec, (budget.num_step_chunks - 1) * options.chunk_tokens, 4)
    num_now, fewest = experts.cache.num_slots, experts.cache.fewest_slots
    fitting = fitting_slots(budget, num_now, held, max(0, unwarmed_bytes))
    if fitting < fewest:
        missing = (fewest - fitting) * budget.slot_bytes
        raise BudgetError(
            f"{spec.name} takes {format_size(missing)} more of the GPU than the plan foresaw; set a shorter --context, "
            "--dense fp8, or a larger --vram."
        )
    num_slots = min(fitting, spec.num_layers * spec.moe.num_experts)
    _logger.info(
        "%d expert slots beside %s of tensors and %s of the driver; %d were planned", num_slots,
        format_size(held.tensor_bytes), format_size(held.driver_bytes), budget.num_slots,
    )  # fmt: skip
    torch.cuda.empty_cache()
    experts.resize(num_slots)
    return replace(budget, num_slots=num_slots, slots_bytes=num_slots * budget.slot_bytes)
