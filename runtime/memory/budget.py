"""Where the memory of one loaded model goes: pure arithmetic from spec, machine and options to a plan, line by line.

Whatever the other lines leave is expert slots. On a GPU the limit is `--vram` or what is free; on a CPU the same
structures lie in main memory, and `--vram` stands in for a card so that slots are scarce. Plans only: allocates and
measures nothing, and refuses by saying so in the plan, with the numbers and the nearest thing that fits.
"""

from dataclasses import dataclass, replace

from runtime.memory.budget_lines import explain
from runtime.memory.budget_plan import BudgetPlan, Machine
from runtime.memory.sizes import (
    DEVICE_QUERY_TILE,
    QUERY_TILE,
    cached_record_bytes,
    dense_bytes,
    experts_bytes,
    format_size,
    index_key_page_bytes,
    kv_page_bytes,
    long_step_bytes,
    state_row_bytes,
    text_bytes,
    workspace_bytes,
)
from runtime.options import EngineOptions
from runtime.spec import PAGE_TOKENS, ModelSpec

MIB = 2**20

ACTIVATION_BYTES = 4
MAX_SEQUENCES = 4
"""Sequences that run at once: a chat and its side calls."""
SIDE_CALL_TOKENS = 1024
"""Length of a side call that KV pages are kept for, beside a chat of full length."""
FEWEST_CONTEXT_TOKENS = 4096
"""A context that was not asked for is not made shorter than this (or the model's own maximum)."""
WIDE_KV_BYTES = 64 * MIB
"""On a GPU keys and values are fp32 where all of them take no more than this, else fp16: their rounding is what moves a
card's answers away from the CPU's, and a small model should not pay for room that it does not need."""
LARGEST_KV_SHARE = 4
"""A context that was not asked for may take one part in this many of what is left for it and the slots."""
SAVED_STATES_BYTES = 2048 * MIB
CUDA_SAVED_STATES_BYTES = 64 * MIB
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
_RAM_STEP_BYTES = 16 * MIB
"""The --ram that is advised is a multiple: the next process is not of the very same size."""
LONG_STEP_CHUNKS = 16
"""Chunks of a prompt in one step where experts stay on the disk: what a layer misses is read once for all of them. More
would cost records in memory, and computing takes as long as reading by then."""
LEAST_STEP_ROOM = 8
"""A long step takes at most one part in this many of what else would be slots and records in memory."""
RINGS_CACHED = 2
"""Of a mapped store, the host cache holds at least the records of the group that is computed and of the next."""
CUDA_PROCESS_BASE_BYTES = 1440 * MIB
"""The engine process once it has run on a GPU: libraries of torch and CUDA, kernels and graphs, the driver's own. On an
H200 with CUDA 13, of which 440 MiB are pages of libraries."""
FIRST_USE_SHARE = 0.25
"""Of the libraries' pages, what the process grows by beside all lines: code that is used for the first time. Measured:
0.18 to 0.21 with 85 MiB of such pages."""


def plan(spec: ModelSpec, machine: Machine, options: EngineOptions) -> BudgetPlan:
    """Plan the memory of `spec` on `machine`. Never raises for a lack of memory: see `BudgetPlan.fits`."""
    return _Planner(spec, machine, options).plan()


def fewest_cached_records(spec: ModelSpec, num_ring_slots: int) -> int:
    """Of a mapped store, what memory must hold at once."""
    num_routed = MAX_SEQUENCES * spec.moe.num_experts_per_token
    return min(spec.num_layers * spec.moe.num_experts, max(RINGS_CACHED * num_ring_slots, num_routed))


@dataclass(frozen=True)
class _Sizes:
    """Bytes of every line but the slots, by name, for one context length."""

    device: dict[str, int]
    host: dict[str, int]
    num_pages: int

    @property
    def device_bytes(self) -> int:
        """The margin included."""
        return sum(self.device.values())

    @property
    def host_bytes(self) -> int:
        return sum(self.host.values())


class _Planner:
    def __init__(self, spec: ModelSpec, machine: Machine, options: EngineOptions) -> None:
        self._spec, self._machine, self._options = spec, machine, options
        self._is_cuda = machine.device == "cuda"
        self._element_bytes = 2 if self._is_cuda and options.dtype != "fp32" else 4
        """Of dense weights, and of keys and values where they are many."""
        self._residual_bytes = 8 if options.dtype == "fp32" and not self._is_cuda else 4
        """Of activations, which are fp32 over whatever weights, and of residual streams."""
        self._record_bytes = spec.weights.record_bytes
        self._num_experts = spec.num_layers * spec.moe.num_experts
        self._fewest_slots = spec.moe.num_experts_per_token
        self._ring_slots = min(spec.moe.num_experts, CUDA_RING_SLOTS if self._is_cuda else CPU_RING_SLOTS)
        self._row_bytes = state_row_bytes(spec, ACTIVATION_BYTES)
        affordable_states = (CUDA_SAVED_STATES_BYTES if self._is_cuda else SAVED_STATES_BYTES) // max(
            1, self._row_bytes
        )
        # Rows that no sequence runs in hold saved states too; on a GPU, rows of their own cost slots.
        fewest = 0 if self._is_cuda else FEWEST_SAVED_STATES
        self._num_saved = min(MOST_SAVED_STATES, max(fewest, affordable_states))
        self._num_rows = MAX_SEQUENCES + self._num_saved
        self._ram_bytes = max(0, machine.ram_available_bytes - RAM_MARGIN_BYTES)
        self._limit = self._device_limit()
        self._fewest_cached = fewest_cached_records(spec, self._ring_slots)
        self._is_table_mapped, self._is_store_mapped, self._num_step_chunks = True, False, 1
        self._is_store_mapped = self._maps_store()
        self._is_table_mapped = self._is_store_mapped or self._maps_ngram_table()

    def plan(self) -> BudgetPlan:
        context_tokens = self._context_tokens()
        # Last of the choices: it takes of slots and records, and never of the context.
        self._num_step_chunks = self._step_chunks(context_tokens) if self._is_store_mapped else 1
        sizes = self._sizes(context_tokens)
        num_slots = self._num_slots(self._room(sizes))
        num_cached = self._num_cached(sizes, num_slots)
        sizes = replace(sizes, host=sizes.host | {"store": self._store_bytes(num_cached)})
        reason = self._refusal(context_tokens, sizes, num_slots)
        budget = self._build(context_tokens, sizes, num_slots, num_cached, reason)
        return replace(budget, lines=explain(budget, self._spec, self._options))

    # ---- choices

    def _device_limit(self) -> int | None:
        if self._options.vram_bytes is not None or not self._is_cuda:
            return self._options.vram_bytes
        return self._machine.vram_free_bytes or 0

    def _maps_store(self) -> bool:
        """All records are in memory where they fit beside everything that must be there, and else on the disk."""
        sizes = self._sizes(self._options.context_tokens or min(FEWEST_CONTEXT_TOKENS, self._spec.max_context_tokens))
        needed_bytes = sizes.host_bytes
        if not self._is_cuda:
            num_slots = min(self._options.num_slots or 0, self._num_experts)
            needed_bytes += sizes.device_bytes + max(num_slots, self._fewest_slots) * self._record_bytes
        return needed_bytes > self._ram_bytes

    def _maps_ngram_table(self) -> bool:
        """The table is copied into memory where it fits beside everything else, and else read from its file."""
        sizes = self._sizes(self._options.context_tokens or min(FEWEST_CONTEXT_TOKENS, self._spec.max_context_tokens))
        others = sizes.host_bytes
        if not self._is_cuda:
            num_slots = self._options.num_slots or self._num_experts // 2
            others += sizes.device_bytes + num_slots * self._record_bytes
        return others + self._spec.weights.ngram_table_bytes > self._ram_bytes

    def _step_chunks(self, context_tokens: int) -> int:
        """As many as the context has, halved until they take little of what is left for slots and records in memory."""
        num_chunks = min(LONG_STEP_CHUNKS, -(-context_tokens // self._options.chunk_tokens))
        sizes = self._sizes(context_tokens)
        slots_bytes = max(self._fewest_slots, min(self._options.num_slots or 0, self._num_experts)) * self._record_bytes
        device_room, host_room = self._room(sizes) - slots_bytes, self._ram_bytes - sizes.host_bytes
        while num_chunks > 1:
            device_bytes, host_bytes = self._long_step_bytes(num_chunks), self._undo_bytes(num_chunks)
            if not self._is_cuda:
                device_bytes, host_bytes = device_bytes + host_bytes, 0
            if LEAST_STEP_ROOM * device_bytes <= device_room and LEAST_STEP_ROOM * host_bytes <= host_room:
                break
            num_chunks //= 2
        return max(1, num_chunks)

    def _long_step_bytes(self, num_chunks: int) -> int:
        return long_step_bytes(self._spec, (num_chunks - 1) * self._options.chunk_tokens, self._residual_bytes)

    def _undo_bytes(self, num_chunks: int) -> int:
        """What sequences were before a step: a chat's long one, or on a GPU any chunk, which side calls share."""
        num_sequences = MAX_SEQUENCES - 1 if self._is_cuda else 1
        return num_sequences * self._row_bytes if num_chunks > 1 else 0

    def _context_tokens(self) -> int:
        """What was asked for, or the model's maximum, halved until its KV leaves room for slots."""
        if self._options.context_tokens is not None:
            return self._options.context_tokens
        tokens = self._spec.max_context_tokens
        shortest = min(FEWEST_CONTEXT_TOKENS, tokens)
        room = self._room(self._sizes(0)) - self._fewest_slots * self._record_bytes
        while tokens > shortest:
            device = self._sizes(tokens).device
            if (device["kv"] + device["index_keys"]) * LARGEST_KV_SHARE <= room:
                break
            tokens = max(shortest, tokens // 2)
        return tokens

    def _num_slots(self, room: int) -> int:
        """What was asked for, or what fits; half of the experts where a CPU sets no limit."""
        if self._options.num_slots is not None:
            return min(self._options.num_slots, self._num_experts)
        fitting = min(max(0, room) // self._record_bytes, self._num_experts)
        if self._limit is None and not self._is_store_mapped:
            return min(fitting, max(self._fewest_slots, self._num_experts // 2))
        return fitting

    def _num_cached(self, sizes: _Sizes, num_slots: int) -> int:
        """Records in memory: all, or as many as the other lines leave beside the fewest."""
        if not self._is_store_mapped:
            return self._num_experts
        free_bytes = self._ram_bytes - sizes.host_bytes
        if not self._is_cuda:
            free_bytes -= sizes.device_bytes + num_slots * self._record_bytes
        num_more = max(0, free_bytes) // cached_record_bytes(self._spec)
        return min(self._num_experts, self._fewest_cached + num_more)

    def _room(self, sizes: _Sizes) -> int:
        """Bytes left for slots; negative where so much is missing."""
        rooms = [] if self._limit is None else [self._limit - sizes.device_bytes]
        if not self._is_cuda:
            rooms.append(self._ram_bytes - sizes.host_bytes - sizes.device_bytes)
        return min(rooms)

    # ---- sizes

    def _sizes(self, context_tokens: int) -> _Sizes:
        spec, options = self._spec, self._options
        num_pages = -(-context_tokens // PAGE_TOKENS) + MAX_SEQUENCES
        num_pages += (MAX_SEQUENCES - 1) * SIDE_CALL_TOKENS // PAGE_TOKENS
        kv_element_bytes = self._kv_element_bytes(num_pages)
        kv = num_pages * kv_page_bytes(spec, kv_element_bytes)
        is_kv_on_host = self._is_cuda and options.kv == "host"
        device = {
            "dense": self._dense_bytes(),
            "kv": 0 if is_kv_on_host else kv,
            "index_keys": num_pages * index_key_page_bytes(spec, kv_element_bytes),
            "state": self._num_rows * self._row_bytes,
            "ring": self._ring_slots * self._record_bytes,
            "workspace": workspace_bytes(
                spec,
                options.chunk_tokens,
                context_tokens,
                ACTIVATION_BYTES,
                self._residual_bytes,
                DEVICE_QUERY_TILE if self._is_cuda else QUERY_TILE,
            )
            + self._long_step_bytes(self._num_step_chunks),
            "graphs": GRAPHS_BYTES if self._is_cuda else 0,
            "overlap": OVERLAP_BYTES if self._is_cuda and options.overlap else 0,
            "context": CUDA_CONTEXT_BYTES if self._is_cuda else 0,
            "margin": self._margin_bytes(),
        }
        base = max(self._machine.process_base_bytes, CUDA_PROCESS_BASE_BYTES if self._is_cuda else 0)
        host = {
            "process": base + int(FIRST_USE_SHARE * self._machine.library_bytes) + text_bytes(spec),
            "store": self._store_bytes(self._fewest_cached),
            "ngram_table": 0 if self._is_table_mapped else spec.weights.ngram_table_bytes,
            # A long step that is given up puts that back.
            "saved_state": self._undo_bytes(self._num_step_chunks),
            "host_kv": kv if is_kv_on_host else 0,
        }
        return _Sizes(device, host, num_pages)

    def _kv_element_bytes(self, num_pages: int) -> int:
        """Of keys, values and index keys, which have one format."""
        page_bytes = kv_page_bytes(self._spec, 4) + index_key_page_bytes(self._spec, 4)
        return 4 if num_pages * page_bytes <= WIDE_KV_BYTES else self._element_bytes

    def _store_bytes(self, num_cached: int) -> int:
        """All records, or a host cache of so many."""
        if not self._is_store_mapped:
            return experts_bytes(self._spec)
        return num_cached * cached_record_bytes(self._spec)

    def _dense_bytes(self) -> int:
        wider_bytes = 4 if self._residual_bytes == 8 else 0
        return dense_bytes(self._spec, self._element_bytes, wider_bytes, self._options.dense == "fp8")

    def _margin_bytes(self) -> int:
        if self._is_cuda:
            return CUDA_MARGIN_BYTES
        return 0 if self._limit is None else self._limit // CPU_MARGIN_SHARE

    # ---- refusal

    def _refusal(self, context_tokens: int, sizes: _Sizes, num_slots: int) -> str:
        """Empty if the plan fits; else the numbers and the nearest thing that does."""
        name, fewest = self._spec.name, self._fewest_slots
        if not 1 <= context_tokens <= self._spec.max_context_tokens:
            return (
                f"{name} can have 1 to {self._spec.max_context_tokens:,} tokens of context, not {context_tokens:,}; "
                f"set --context {self._spec.max_context_tokens} or less."
            )
        if self._options.num_slots is not None and num_slots < fewest:
            return (
                f"{num_slots} expert slots are too few: a token of {name} needs {fewest} experts per layer; "
                f"set --slots {fewest} or more."
            )
        fewest_bytes = fewest * self._record_bytes
        needed_ram = sizes.host_bytes + (0 if self._is_cuda else sizes.device_bytes + fewest_bytes)
        if needed_ram > self._ram_bytes:
            return (
                f"{name} needs {format_size(needed_ram + RAM_MARGIN_BYTES)} of main memory, even with its experts on "
                f"the disk, but {self._more_ram(needed_ram + RAM_MARGIN_BYTES)}."
            )
        wanted_slots = max(num_slots, fewest)
        if wanted_slots * self._record_bytes <= self._room(sizes):
            return ""
        needed = sizes.device_bytes - sizes.device["margin"] + wanted_slots * self._record_bytes
        return (
            f"{name} with {wanted_slots:,} expert slots and {context_tokens:,} tokens of context needs "
            f"{format_size(self._limit_for(needed))}, but {self._limit_name()} is "
            f"{format_size(sizes.device_bytes + self._room(sizes))}; {self._nearest(context_tokens, sizes, needed)}."
        )

    def _more_ram(self, needed_bytes: int) -> str:
        """What there is and what to do: raise --ram where it is the limit, else free memory."""
        available_bytes = self._machine.ram_available_bytes
        if self._options.ram_bytes is not None and self._options.ram_bytes <= available_bytes:
            enough = -(-needed_bytes // _RAM_STEP_BYTES) * _RAM_STEP_BYTES
            return f"--ram is {format_size(self._options.ram_bytes)}; set --ram {enough // MIB}MiB or more"
        return f"only {format_size(available_bytes)} are free; close other programs or choose a smaller model"

    def _nearest(self, context_tokens: int, sizes: _Sizes, needed_bytes: int) -> str:
        """What would fit: fewer slots, a shorter context, a larger limit."""
        fitting_slots = self._room(sizes) // self._record_bytes
        if fitting_slots >= self._fewest_slots:
            return f"{fitting_slots:,} slots fit: set --slots {fitting_slots} or fewer"
        shorter = self._fitting_context(context_tokens)
        if shorter:
            return f"{shorter:,} tokens fit: set --context {shorter}"
        if (
            self._is_cuda
            and self._options.dense != "fp8"
            and plan(self._spec, self._machine, replace(self._options, dense="fp8")).fits
        ):
            return "dense weights in fp8 fit: set --dense fp8"
        if self._options.vram_bytes is not None:
            return f"set --vram {-(-self._limit_for(needed_bytes) // MIB)}MiB or more"
        return "close other programs or choose a smaller model"

    def _fitting_context(self, context_tokens: int) -> int:
        """The longest context, halved from this one, that leaves the fewest slots; 0 if not even one page does."""
        while context_tokens >= 2 * PAGE_TOKENS:
            context_tokens //= 2
            if self._room(self._sizes(context_tokens)) >= self._fewest_slots * self._record_bytes:
                return context_tokens
        return 0

    def _limit_for(self, needed_bytes: int) -> int:
        """The limit that holds so much and its own margin."""
        if self._is_cuda:
            return needed_bytes + CUDA_MARGIN_BYTES
        if self._limit is None:
            return needed_bytes
        return -(-needed_bytes * CPU_MARGIN_SHARE // (CPU_MARGIN_SHARE - 1))

    def _limit_name(self) -> str:
        if self._options.vram_bytes is not None:
            return "--vram"
        return "the free memory of the GPU" if self._is_cuda else "the free main memory"

    # ---- result

    def _build(self, context_tokens: int, sizes: _Sizes, num_slots: int, num_cached: int, reason: str) -> BudgetPlan:
        device, host = sizes.device, sizes.host
        slots_bytes = num_slots * self._record_bytes
        device_bytes = sizes.device_bytes - device["margin"] + slots_bytes
        total_bytes = device_bytes + sizes.host_bytes
        free_bytes = self._machine.ram_available_bytes - total_bytes
        return BudgetPlan(
            fits=not reason,
            reason=reason,
            lines=(),
            device=self._machine.device,
            context_tokens=context_tokens,
            num_slots=num_slots,
            num_ring_slots=self._ring_slots,
            num_pages=sizes.num_pages,
            has_wide_kv=self._kv_element_bytes(sizes.num_pages) == 4,
            max_sequences=max(1, min(MAX_SEQUENCES, num_slots // self._fewest_slots)),
            num_state_rows=self._num_rows,
            num_saved_states=self._num_saved,
            num_step_chunks=self._num_step_chunks,
            is_ngram_table_mapped=self._is_table_mapped,
            is_store_mapped=self._is_store_mapped,
            num_cached_records=num_cached,
            **{f"{name}_bytes": num_bytes for name, num_bytes in (device | host).items()},
            slots_bytes=slots_bytes,
            slot_bytes=self._record_bytes,
            device_bytes=device_bytes,
            host_bytes=sizes.host_bytes,
            total_bytes=total_bytes,
            limit_bytes=self._limit,
            headroom_bytes=free_bytes if self._limit is None else self._limit - device_bytes,
        )
