"""Where the memory of one loaded model goes: pure arithmetic from spec, machine and options to a plan, line by line.

Whatever the other lines leave is expert slots. On a GPU the limit is `--vram` or what is free; on a CPU the same
structures lie in main memory, and `--vram` stands in for a card so that slots are scarce. Plans only: allocates and
measures nothing, and refuses by saying so in the plan, with the numbers and the nearest thing that fits.
"""

from dataclasses import dataclass

from runtime.errors import BudgetError
from runtime.memory.sizes import (
    experts_bytes,
    fp8_dense_bytes,
    index_key_page_bytes,
    kv_page_bytes,
    state_row_bytes,
    workspace_bytes,
)
from runtime.options import EngineOptions
from runtime.spec import PAGE_TOKENS, ModelSpec

MIB = 2**20
GIB = 2**30

MAX_SEQUENCES = 4
"""Sequences that run at once: a chat and its side calls."""
SIDE_CALL_TOKENS = 1024
"""Length of a side call that KV pages are kept for, beside a chat of full length."""
FEWEST_CONTEXT_TOKENS = 4096
"""A context that was not asked for is not made shorter than this (or the model's own maximum)."""
LARGEST_KV_SHARE = 4
"""A context that was not asked for may take one part in this many of what is left for it and the slots."""
SAVED_STATE_BYTES = 2 * GIB
FEWEST_SAVED_STATES, MOST_SAVED_STATES = 4, 28
"""Saved states of sequences: each makes one prefix of a conversation reusable."""
CPU_RING_SLOTS, CUDA_RING_SLOTS = 8, 64
"""Experts of one prefill group. A CPU computes one after the other; a GPU wants a copy long enough to hide behind."""
OVERLAP_BYTES = 24 * MIB
"""The side branch's graph nodes and its stream's pool, measured on an RTX 5080."""
GRAPHS_BYTES = 64 * MIB
"""Decode graphs for one to four rows, sharing one pool."""
CUDA_CONTEXT_BYTES = 350 * MIB
CUDA_MARGIN_BYTES = 256 * MIB
"""Left free for the driver and for what allocators round up."""
CPU_MARGIN_SHARE = 50
"""Of `--vram` on a CPU, one part in this many is left free."""
RAM_MARGIN_BYTES = 512 * MIB
"""Main memory left to the rest of the system."""
PROCESS_BASE_BYTES = 290 * MIB
"""The interpreter with torch and the other libraries; the engine measures its own before it plans."""
CUDA_PROCESS_BASE_BYTES = 700 * MIB


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
    """What the engine process holds before it loads a model."""


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
    """Device lines first, then host lines."""
    device: str
    context_tokens: int
    num_slots: int
    num_ring_slots: int
    num_pages: int
    max_sequences: int
    """Sequences that may decode together: at most four, and never more than the slots can serve."""
    num_state_rows: int
    """Live sequences' rows; on a CPU the saved ones follow in the same pool."""
    num_saved_states: int
    is_ngram_table_mapped: bool
    """The n-gram table stays in the checkpoint's file instead of memory."""

    # Lines on the device (a CPU's are in main memory).
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

    # Lines in main memory.
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
    """Device and host together: on a CPU the memory of the engine process."""
    limit_bytes: int | None
    """The most the device lines and the margin may take; None where nothing limits them (a CPU without --vram)."""
    headroom_bytes: int
    """Limit minus device lines: what stays free. Where nothing limits them: main memory that stays available."""

    def require(self) -> "BudgetPlan":
        """This plan, or BudgetError with its reason."""
        if not self.fits:
            raise BudgetError(self.reason)
        return self


def plan(spec: ModelSpec, machine: Machine, options: EngineOptions) -> BudgetPlan:
    """Plan the memory of `spec` on `machine`. Never raises for a lack of memory: see `BudgetPlan.fits`."""
    return _Planner(spec, machine, options).plan()


@dataclass(frozen=True)
class _Sizes:
    """Everything but the slots, for one context length."""

    device: dict[str, int]
    host: dict[str, int]
    num_pages: int

    @property
    def device_bytes(self) -> int:
        return sum(self.device.values())


class _Planner:
    def __init__(self, spec: ModelSpec, machine: Machine, options: EngineOptions) -> None:
        self._spec, self._machine, self._options = spec, machine, options
        self._is_cuda = machine.device == "cuda"
        self._element_bytes = 2 if self._is_cuda and options.dtype != "fp32" else 4
        self._record_bytes = spec.weights.record_bytes
        self._num_experts = spec.num_layers * spec.moe.num_experts
        self._ring_slots = min(spec.moe.num_experts, CUDA_RING_SLOTS if self._is_cuda else CPU_RING_SLOTS)
        row_bytes = state_row_bytes(spec, self._element_bytes)
        self._num_saved = min(MOST_SAVED_STATES, max(FEWEST_SAVED_STATES, SAVED_STATE_BYTES // max(1, row_bytes)))
        self._fewest_slots = min(spec.moe.num_experts_per_token, spec.moe.num_experts)
        # Both sides share main memory on a CPU, so all of it but the rest of the process is the device's limit there.
        limit = options.vram_bytes if options.vram_bytes is not None else machine.vram_free_bytes
        self._limit = limit if self._is_cuda or options.vram_bytes is not None else None
        self._ram_bytes = max(0, machine.ram_available_bytes - RAM_MARGIN_BYTES)
        self._is_table_mapped = self._maps_ngram_table()

    def plan(self) -> BudgetPlan:
        context_tokens = self._context_tokens()
        sizes = self._sizes(context_tokens)
        room = self._room(sizes)
        num_slots = self._num_slots(room)
        reason = self._refusal(context_tokens, sizes, room, num_slots)
        return self._build(context_tokens, sizes, max(0, num_slots), reason)

    # ---- choices

    def _maps_ngram_table(self) -> bool:
        """The table is copied into memory where it fits beside the experts, and else read from its file."""
        table = self._spec.weights.ngram_table_bytes
        others = experts_bytes(self._spec) + self._machine.process_base_bytes
        if not self._is_cuda:
            others += 4 * self._spec.weights.dense_params + experts_bytes(self._spec) // 2
        return others + table > self._ram_bytes

    def _context_tokens(self) -> int:
        """What was asked for, or the model's maximum, halved until its KV leaves room for slots."""
        if self._options.context_tokens is not None:
            return self._options.context_tokens
        tokens = self._spec.max_context_tokens
        shortest = min(FEWEST_CONTEXT_TOKENS, tokens)
        room = self._room(self._sizes(0)) - self._fewest_slots * self._record_bytes
        while tokens > shortest:
            sizes = self._sizes(tokens).device
            if (sizes["kv"] + sizes["index_keys"]) * LARGEST_KV_SHARE <= room:
                break
            tokens = max(shortest, tokens // 2)
        return tokens

    def _num_slots(self, room: int) -> int:
        """What was asked for, or what fits; half of the experts where a CPU sets no limit."""
        if self._options.num_slots is not None:
            return min(self._options.num_slots, self._num_experts)
        fitting = min(max(0, room) // self._record_bytes, self._num_experts)
        if self._limit is None:
            return min(fitting, max(self._fewest_slots, self._num_experts // 2))
        return fitting

    def _room(self, sizes: _Sizes) -> int:
        """Bytes left for slots (negative: so much is missing)."""
        room = self._ram_room(sizes) if not self._is_cuda else self._machine_limit() - sizes.device_bytes
        if self._limit is not None and not self._is_cuda:
            room = min(room, self._limit - sizes.device_bytes)
        return room

    def _machine_limit(self) -> int:
        return self._limit or 0

    def _ram_room(self, sizes: _Sizes) -> int:
        return self._ram_bytes - sum(sizes.host.values()) - sizes.device_bytes

    # ---- sizes

    def _sizes(self, context_tokens: int) -> _Sizes:
        spec, weights = self._spec, self._spec.weights
        num_pages = -(-context_tokens // PAGE_TOKENS) + MAX_SEQUENCES
        num_pages += (MAX_SEQUENCES - 1) * SIDE_CALL_TOKENS // PAGE_TOKENS
        kv = num_pages * kv_page_bytes(spec, self._element_bytes)
        is_kv_on_host = self._is_cuda and self._options.kv == "host"
        row_bytes = state_row_bytes(spec, self._element_bytes)
        device = {
            "dense": self._dense_bytes(),
            "kv": 0 if is_kv_on_host else kv,
            "index_keys": num_pages * index_key_page_bytes(spec, self._element_bytes),
            "state": MAX_SEQUENCES * row_bytes,
            "ring": self._ring_slots * self._record_bytes,
            "workspace": workspace_bytes(spec, self._options.chunk_tokens, context_tokens, self._element_bytes),
            "graphs": GRAPHS_BYTES if self._is_cuda else 0,
            "overlap": OVERLAP_BYTES if self._is_cuda and self._options.overlap else 0,
            "context": CUDA_CONTEXT_BYTES if self._is_cuda else 0,
            "margin": self._margin_bytes(),
        }
        base = max(self._machine.process_base_bytes, CUDA_PROCESS_BASE_BYTES if self._is_cuda else 0)
        host = {
            "process": base,
            "store": experts_bytes(spec),
            "ngram_table": 0 if self._is_table_mapped else weights.ngram_table_bytes,
            "saved_state": self._num_saved * row_bytes,
            "host_kv": kv if is_kv_on_host else 0,
        }
        return _Sizes(device, host, num_pages)

    def _dense_bytes(self) -> int:
        if self._is_cuda and self._options.dense == "fp8" and self._element_bytes == 2:
            return fp8_dense_bytes(self._spec)
        return self._spec.weights.dense_params * self._element_bytes

    def _margin_bytes(self) -> int:
        if self._is_cuda:
            return CUDA_MARGIN_BYTES
        return 0 if self._options.vram_bytes is None else self._options.vram_bytes // CPU_MARGIN_SHARE

    # ---- refusal

    def _refusal(self, context_tokens: int, sizes: _Sizes, room: int, num_slots: int) -> str:
        """Empty if the plan fits."""
        spec, options = self._spec, self._options
        if context_tokens > spec.max_context_tokens:
            return (
                f"{spec.name} knows {spec.max_context_tokens} tokens of context, not {context_tokens}; "
                f"set --context {spec.max_context_tokens} or less."
            )
        if context_tokens < 1:
            return f"A context of {context_tokens} tokens holds nothing; set --context 1 or more."
        if options.num_slots is not None and options.num_slots < self._fewest_slots:
            return (
                f"{options.num_slots} expert slots are too few: every token needs {self._fewest_slots} experts per "
                f"layer; set --slots {self._fewest_slots} or more."
            )
        host_bytes = sum(sizes.host.values())
        needed_ram = host_bytes + (0 if self._is_cuda else sizes.device_bytes + self._fewest_slots * self._record_bytes)
        if needed_ram > self._ram_bytes:
            return (
                f"{spec.name} needs {_size(needed_ram + RAM_MARGIN_BYTES)} of main memory, "
                f"{_size(sizes.host['store'])} of it for experts, and {_size(self._machine.ram_available_bytes)} are free; close other programs or "
                "choose a smaller model."
            )
        wanted = max(num_slots, self._fewest_slots)
        if wanted * self._record_bytes <= room:
            return ""
        return self._does_not_fit(context_tokens, sizes, room, wanted)

    def _does_not_fit(self, context_tokens: int, sizes: _Sizes, room: int, num_slots: int) -> str:
        """The numbers, and the nearest thing that fits: fewer slots, a shorter context, a larger limit."""
        needed = sizes.device_bytes + num_slots * self._record_bytes
        available = sizes.device_bytes + room
        limit_name = "--vram" if self._options.vram_bytes is not None else f"free {self._memory_name()}"
        text = (
            f"{self._spec.name} with {num_slots} expert slots and {context_tokens} tokens of context needs "
            f"{_size(needed)}, but {limit_name} is {_size(available)}; "
        )
        fitting = room // self._record_bytes
        if fitting >= self._fewest_slots:
            return text + f"{fitting} slots fit: set --slots {fitting} or fewer."
        shorter = self._fitting_context(context_tokens)
        if shorter:
            return text + f"a context of {shorter} tokens fits: set --context {shorter}."
        if self._options.vram_bytes is not None:
            return text + f"set --vram {-(-self._limit_for(needed - sizes.device['margin']) // MIB)}MiB or more."
        return text + "close other programs or choose a smaller model."

    def _fitting_context(self, context_tokens: int) -> int:
        """The longest context, halved from this one, that leaves the fewest slots; 0 if none of 64 tokens or more."""
        while context_tokens >= 2 * PAGE_TOKENS:
            context_tokens //= 2
            if self._room(self._sizes(context_tokens)) >= self._fewest_slots * self._record_bytes:
                return context_tokens
        return 0

    def _limit_for(self, needed_bytes: int) -> int:
        """The --vram that holds so much and its own margin."""
        if self._is_cuda:
            return needed_bytes + CUDA_MARGIN_BYTES
        return -(-needed_bytes * CPU_MARGIN_SHARE // (CPU_MARGIN_SHARE - 1))

    def _memory_name(self) -> str:
        return "memory of the GPU" if self._is_cuda else "main memory"

    # ---- result

    def _build(self, context_tokens: int, sizes: _Sizes, num_slots: int, reason: str) -> BudgetPlan:
        device, host = sizes.device, sizes.host
        slots_bytes = num_slots * self._record_bytes
        device_bytes = sizes.device_bytes - device["margin"] + slots_bytes
        host_bytes = sum(host.values())
        total_bytes = device_bytes + host_bytes
        headroom = (
            self._machine.ram_available_bytes - total_bytes if self._limit is None else self._limit - device_bytes
        )
        return BudgetPlan(
            fits=not reason,
            reason=reason,
            lines=self._lines(context_tokens, sizes, num_slots),
            device=self._machine.device,
            context_tokens=context_tokens,
            num_slots=num_slots,
            num_ring_slots=self._ring_slots,
            num_pages=sizes.num_pages,
            max_sequences=max(1, min(MAX_SEQUENCES, num_slots // max(1, self._fewest_slots))),
            num_state_rows=MAX_SEQUENCES,
            num_saved_states=self._num_saved,
            is_ngram_table_mapped=self._is_table_mapped,
            **{f"{name}_bytes": num_bytes for name, num_bytes in (device | host).items()},
            slots_bytes=slots_bytes,
            slot_bytes=self._record_bytes,
            device_bytes=device_bytes,
            host_bytes=host_bytes,
            total_bytes=total_bytes,
            limit_bytes=self._limit,
            headroom_bytes=headroom,
        )

    def _lines(self, context_tokens: int, sizes: _Sizes, num_slots: int) -> tuple[BudgetLine, ...]:
        spec, device, host = self._spec, sizes.device, sizes.host
        no_gpu = "none: there is no GPU"
        table = "read from the checkpoint's file" if self._is_table_mapped else "in main memory, as stored"
        whys = {
            "dense": f"{spec.weights.dense_params:,} weights in {self._dense_name()}",
            "kv": f"{sizes.num_pages} pages of {PAGE_TOKENS} tokens: one chat of {context_tokens:,} and side calls",
            "index_keys": "one key per block for sparse attention" if spec.indexer else "none: no sparse attention",
            "state": f"{MAX_SEQUENCES} running sequences",
            "ring": f"{self._ring_slots} experts in flight while a prompt is read",
            "workspace": f"activations of {self._options.chunk_tokens} tokens",
            "graphs": "decode graphs for 1 to 4 rows" if self._is_cuda else no_gpu,
            "overlap": self._overlap_why(),
            "context": "CUDA context" if self._is_cuda else no_gpu,
            "margin": "stays free",
            "slots": self._slots_why(num_slots),
            "process": "interpreter and libraries",
            "store": f"{self._num_experts:,} routed experts of {_size(self._record_bytes)}",
            "ngram_table": table if spec.ngram else "none: no n-gram embedding",
            "saved_state": f"{self._num_saved} saved states, so that turns are not read twice",
            "host_kv": "keys and values in main memory (--kv host)"
            if host["host_kv"]
            else "none: they are on the device",
        }
        values = device | {"slots": num_slots * self._record_bytes} | host
        return tuple(BudgetLine(name, num_bytes, whys[name]) for name, num_bytes in values.items())

    def _dense_name(self) -> str:
        if self._element_bytes == 4:
            return "fp32"
        return "fp8, some in bf16" if self._options.dense == "fp8" else "bf16"

    def _overlap_why(self) -> str:
        if not self._is_cuda:
            return "none: the overlap path needs a GPU"
        return "the side branch of the decode graph" if self._options.overlap else "none: overlap is off"

    def _slots_why(self, num_slots: int) -> str:
        text = f"{num_slots:,} of {self._num_experts:,} experts"
        if self._options.num_slots is not None:
            return text + " (--slots)"
        if num_slots == self._num_experts:
            return text + ", all of them"
        if self._limit is None:
            return text + ": half, so that slots behave as on a GPU they don't all fit on"
        return text + ", what the other lines leave"


def _size(num_bytes: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (2**10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes} bytes"
