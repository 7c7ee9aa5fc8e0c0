"""The values a budget is made of: the machine it was made for, its lines, and the plan the engine allocates by."""

from dataclasses import dataclass

from runtime.errors import BudgetError

PROCESS_BASE_BYTES = 305 * 2**20
"""The interpreter with torch and the other libraries, where nobody measured it; the engine measures its own."""
LIBRARY_BYTES = 150 * 2**20
"""Of it, what is mapped from the libraries' files. It differs by half between machines, with the way the system keeps
those files in memory."""


@dataclass(frozen=True)
class Machine:
    """What a plan has to live with. `vram_free_bytes` is None where there is no GPU."""

    device: str
    """cpu or cuda."""
    vram_free_bytes: int | None
    ram_total_bytes: int
    ram_available_bytes: int
    num_cores: int
    process_base_bytes: int = PROCESS_BASE_BYTES
    """What the engine process holds before it loads a model, its libraries' pages included."""
    library_bytes: int = LIBRARY_BYTES
    """The part of it that is mapped from the libraries' files."""


@dataclass(frozen=True)
class BudgetLine:
    """One row of the table."""

    name: str
    num_bytes: int
    why: str


@dataclass(frozen=True)
class BudgetPlan:
    """Sizes of everything the engine allocates. If `fits` is False, `reason` says why and what would fit."""

    fits: bool
    reason: str
    lines: tuple[BudgetLine, ...]
    """Device lines first, then host lines; their names are those of the `*_bytes` fields below."""
    device: str
    context_tokens: int
    num_slots: int
    num_ring_slots: int
    num_pages: int
    has_wide_kv: bool
    """Keys and values are fp32; else fp16."""
    max_sequences: int
    """Sequences that may decode together: at most four, and never more than the slots can serve."""
    num_state_rows: int
    """Rows of the state pool on the device. On a CPU the saved states' rows are among them."""
    num_saved_states: int
    num_step_chunks: int
    """Chunks of a prompt in one step."""
    is_ngram_table_mapped: bool
    """The n-gram table stays in the checkpoint's file instead of memory."""
    is_store_mapped: bool
    """Experts stay on the disk, and only some of their records are in memory."""
    num_cached_records: int
    """Records in main memory, slots not counted: all of them where the store is not mapped."""

    # Lines on the device; a CPU's are in main memory.
    dense_bytes: int
    kv_bytes: int
    index_keys_bytes: int
    state_bytes: int
    ring_bytes: int
    workspace_bytes: int
    graphs_bytes: int
    overlap_bytes: int
    context_bytes: int
    """The CUDA context."""
    margin_bytes: int
    slots_bytes: int

    # Lines in main memory whatever the device.
    process_bytes: int
    store_bytes: int
    ngram_table_bytes: int
    saved_state_bytes: int
    host_kv_bytes: int

    # Sums and limits.
    slot_bytes: int
    """One slot: one expert record."""
    device_bytes: int
    """All device lines but the margin: what the engine will hold there."""
    host_bytes: int
    """All host lines."""
    total_bytes: int
    """Device and host together: on a CPU, the memory of the engine process at its peak, the widest step of a prompt
    that fills the context (Linux calls it VmHWM). Loading takes it there; between steps the process holds less, by the
    scores of a long context."""
    limit_bytes: int | None
    """The most that device lines and margin may take; None where nothing limits them (a CPU without --vram)."""
    headroom_bytes: int
    """Limit minus device lines; where nothing limits them, main memory that stays available."""

    def require(self) -> "BudgetPlan":
        """This plan, or BudgetError with its reason."""
        if not self.fits:
            raise BudgetError(self.reason)
        return self
