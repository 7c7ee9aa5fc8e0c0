"""The table of a budget: one line per part, with its why in words for a person. Decides nothing."""

from runtime.memory.budget_plan import BudgetLine, BudgetPlan
from runtime.memory.sizes import format_size
from runtime.options import EngineOptions
from runtime.spec import PAGE_TOKENS, ModelSpec


def explain(budget: BudgetPlan, spec: ModelSpec, options: EngineOptions) -> tuple[BudgetLine, ...]:
    """Every line of a plan, device lines first."""
    whys = _device_whys(budget, spec, options) | _host_whys(budget, spec)
    return tuple(BudgetLine(name, getattr(budget, f"{name}_bytes"), why) for name, why in whys.items())


def _device_whys(budget: BudgetPlan, spec: ModelSpec, options: EngineOptions) -> dict[str, str]:
    is_cuda, no_gpu = budget.device == "cuda", "there is no GPU"
    num_running = budget.num_state_rows - budget.num_saved_states
    state = f"{num_running} running sequences and {_saved_states(budget)}"
    if not budget.num_saved_states:
        state = f"{num_running} sequences, running or saved"
    kv = f"{budget.num_pages} pages of {PAGE_TOKENS} tokens: a chat of {budget.context_tokens:,} and its side calls"
    if is_cuda:
        kv += ", in fp32" if budget.has_wide_kv else ", in fp16"
    return {
        "dense": f"{spec.weights.dense_params:,} weights in {_dense_name(budget, options)}",
        "kv": "on the host (--kv host)" if budget.host_kv_bytes else kv,
        "index_keys": "one key per block of sparse attention" if spec.indexer else "no sparse attention",
        "state": state,
        "ring": f"{budget.num_ring_slots} experts passing through while a prompt is read",
        "workspace": _workspace_why(budget, options),
        "graphs": "decode graphs of 1 to 4 rows" if is_cuda else no_gpu,
        "overlap": _overlap_why(budget, options),
        "context": "CUDA context" if is_cuda else no_gpu,
        "margin": "stays free" if budget.margin_bytes else "no limit is set",
        "slots": _slots_why(budget, spec, options),
    }


def _host_whys(budget: BudgetPlan, spec: ModelSpec) -> dict[str, str]:
    num_experts = spec.num_layers * spec.moe.num_experts
    store = f"{num_experts:,} routed experts of {format_size(budget.slot_bytes)}"
    if budget.is_store_mapped:
        store = f"{budget.num_cached_records:,} of {store}; the others are read from the disk"
    table = "read from the checkpoint's file" if budget.is_ngram_table_mapped else "in memory as it is stored"
    return {
        "process": "interpreter, libraries, tokenizer",
        "store": store,
        "ngram_table": table if spec.ngram else "no n-gram embedding",
        "saved_state": "states of before a long step" if budget.saved_state_bytes else "part of the state line",
        "host_kv": "keys and values (--kv host)" if budget.host_kv_bytes else "they are on the device",
    }


def _workspace_why(budget: BudgetPlan, options: EngineOptions) -> str:
    text = f"activations of {options.chunk_tokens} tokens"
    if budget.num_step_chunks == 1:
        return text
    return text + f"; a prompt's experts are read once for {budget.num_step_chunks * options.chunk_tokens:,}"


def _saved_states(budget: BudgetPlan) -> str:
    return f"{budget.num_saved_states} saved states, so that a turn is not read twice"


def _dense_name(budget: BudgetPlan, options: EngineOptions) -> str:
    name = "fp32" if budget.device == "cpu" or options.dtype == "fp32" else "bf16"
    if options.dense == "fp8":
        return f"fp8, some in {name}"
    return "fp32, some in fp64" if budget.device == "cpu" and options.dtype == "fp32" else name


def _overlap_why(budget: BudgetPlan, options: EngineOptions) -> str:
    if budget.device == "cpu":
        return "the overlap path needs a GPU"
    return "side branch of the decode graph" if options.overlap else "overlap is off"


def _slots_why(budget: BudgetPlan, spec: ModelSpec, options: EngineOptions) -> str:
    num_experts = spec.num_layers * spec.moe.num_experts
    text = f"{budget.num_slots:,} of {num_experts:,} experts"
    if budget.num_slots == num_experts:
        return text + ", all of them"
    if options.num_slots is not None:
        return text + ", as --slots says"
    if budget.limit_bytes is None and budget.num_slots == num_experts // 2:
        return text + ": half of them, so that slots work as on a GPU that can't hold all"
    return text + ": what the other lines leave"
