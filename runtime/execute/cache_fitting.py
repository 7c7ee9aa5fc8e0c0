"""Gives the host cache of a mapped store the memory that is left once everything else is there: measured, not guessed.

What CUDA, its libraries and a driver take of main memory differs by version and card, and is there only after a
warm-up, which runs with as few records as a step needs.
"""

import logging
from dataclasses import replace

from runtime.errors import BudgetError
from runtime.experts.mapped_store import MappedStore
from runtime.memory.budget import RAM_MARGIN_BYTES, fewest_cached_records
from runtime.memory.budget_plan import BudgetPlan, Machine
from runtime.memory.sizes import cached_record_bytes, format_size
from runtime.spec import ModelSpec

GROWTH_BYTES = 64 << 20
"""What answers add to the process after the warm-up: 29 MiB were seen on an H200."""
_logger = logging.getLogger("hotslot.engine")


def fitting_records(budget: BudgetPlan, spec: ModelSpec, machine: Machine, others_bytes: int) -> int:
    """How many records the machine's memory leaves room for beside `others_bytes` of this process and the margin; no
    more than planned, and negative where the others alone are too much."""
    left_bytes = machine.ram_available_bytes - RAM_MARGIN_BYTES - GROWTH_BYTES - others_bytes
    left_bytes -= budget.saved_state_bytes
    return min(budget.num_cached_records, left_bytes // cached_record_bytes(spec))


def fit_cache(
    store: MappedStore, budget: BudgetPlan, spec: ModelSpec, machine: Machine, others_bytes: int
) -> BudgetPlan:
    """Resize the cache to what fits beside `others_bytes` of this process. Returns the plan with that number.

    Raises BudgetError where not even the fewest records fit.
    """
    fitting, fewest = (
        fitting_records(budget, spec, machine, others_bytes),
        fewest_cached_records(spec, budget.num_ring_slots),
    )
    if fitting < fewest:
        missing = (fewest - fitting) * cached_record_bytes(spec)
        raise BudgetError(
            f"{spec.name} takes {format_size(missing)} more of main memory than the plan foresaw; close other "
            "programs, set a larger --ram, or choose a smaller model."
        )
    _logger.info(
        "%d of the experts' records in memory beside %s of the process; %d were planned", fitting,
        format_size(others_bytes), budget.num_cached_records,
    )  # fmt: skip
    store.resize(fitting)
    store_bytes = fitting * cached_record_bytes(spec)
    host_bytes = budget.host_bytes - budget.store_bytes + store_bytes
    return replace(budget, num_cached_records=fitting, store_bytes=store_bytes, host_bytes=host_bytes)
