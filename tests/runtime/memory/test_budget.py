"""The plan: every line is there and adds up, slots are what is left, and what does not fit is refused with numbers."""

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import BudgetError
from runtime.families.registry import read_spec
from runtime.kernels.torch_ops import attention, experts
from runtime.memory import budget as budget_module
from runtime.memory import sizes
from runtime.memory.budget import plan
from runtime.memory.budget_plan import BudgetPlan, Machine
from runtime.options import EngineOptions
from runtime.record import RecordLayout
from runtime.spec import ModelSpec

MIB, GIB = 2**20, 2**30

FLAGSHIP_TEXT = {
    "model_type": "qwen4_exp_text", "hidden_size": 2560, "num_hidden_layers": 48, "num_attention_heads": 24,
    "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_num_value_heads": 48, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248320,
    "output_gate_type": "sigmoid", "max_position_embeddings": 262144, "eos_token_id": 248044, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 640, "shared_expert_intermediate_size": 640,
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "hc_count": 4, "hc_lowrank": 320, "ple_layer_ids": [2],
    "ple_embed_dim": 2560, "ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 8,
    "ngram_vocab_size_base": 20_000_000, "make_ngram_vocab_size_divisible_by": 128, "split_ngram_parts": 128,
    "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048,
    "indexer_compress_ratio": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}  # fmt: skip


def as_nvfp4(spec: ModelSpec, ngram_table_bytes: int) -> ModelSpec:
    layout = RecordLayout.build(spec.hidden_size, spec.moe.intermediate, "nvfp4")
    weights = replace(
        spec.weights,
        expert_format="nvfp4",
        record_bytes=layout.record_bytes,
        ngram_table_bytes=ngram_table_bytes,
    )
    return replace(spec, weights=weights)


@pytest.fixture(scope="module")
def flagship() -> ModelSpec:
    config = {"model_type": "qwen4_exp", "tie_word_embeddings": False, "text_config": FLAGSHIP_TEXT}
    return as_nvfp4(read_spec(config, "flagship"), 51_200_245_760)


@pytest.fixture(scope="module")
def small() -> ModelSpec:
    """The demo's shape."""
    text = FLAGSHIP_TEXT | {
        "hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6, "head_dim": 64, "vocab_size": 8192,
        "linear_num_key_heads": 2, "linear_key_head_dim": 64, "linear_num_value_heads": 6, "linear_value_head_dim": 64,
        "max_position_embeddings": 8192, "num_experts": 48, "num_experts_per_tok": 4, "moe_intermediate_size": 96,
        "shared_expert_intermediate_size": 128, "hc_lowrank": 32, "ple_embed_dim": 256, "ngram_vocab_size_base": 4096,
        "split_ngram_parts": 4, "indexer_head_dim": 32, "indexer_budget": 512, "eos_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5},
    }  # fmt: skip
    config = {"model_type": "qwen4_exp", "tie_word_embeddings": True, "text_config": text}
    return as_nvfp4(read_spec(config, "small"), 2_138_112)


OPTIONS = EngineOptions(Path("model"))
LAPTOP = Machine("cpu", None, 16 * GIB, 12 * GIB, 4)
DESKTOP = Machine("cuda", 15_882 * MIB, 128 * 10**9, 124 * 10**9, 16)


def assert_adds_up(budget: BudgetPlan) -> None:
    by_name = {line.name: line.num_bytes for line in budget.lines}
    sums = {"device_bytes", "host_bytes", "total_bytes", "limit_bytes", "headroom_bytes", "slot_bytes"}
    line_fields = {field.name for field in fields(budget) if field.name.endswith("_bytes")} - sums
    assert {f"{name}_bytes" for name in by_name} == line_fields
    assert all(getattr(budget, f"{name}_bytes") == num_bytes for name, num_bytes in by_name.items())
    assert all(line.why for line in budget.lines)
    assert budget.total_bytes == budget.device_bytes + budget.host_bytes == sum(by_name.values()) - by_name["margin"]
    assert budget.slots_bytes == budget.num_slots * budget.slot_bytes
    if budget.fits:
        assert budget.reason == ""
        assert budget.require() is budget
        assert budget.headroom_bytes >= budget.margin_bytes
    else:
        assert re.search(r"\d", budget.reason)
        assert "\n" not in budget.reason
        with pytest.raises(BudgetError):
            budget.require()


def test_flagship_on_a_16_gb_card(flagship: ModelSpec) -> None:
    budget = plan(flagship, DESKTOP, replace(OPTIONS, context_tokens=32_768))
    assert_adds_up(budget)
    assert budget.fits
    assert budget.slot_bytes == 2_764_928
    assert budget.store_bytes == pytest.approx(63.28 * GIB, rel=1e-3)
    assert budget.dense_bytes == pytest.approx(9.22 * GIB, rel=1e-3)
    assert budget.ngram_table_bytes == 51_200_245_760
    assert budget.overlap_bytes == 24 * MIB
    assert 1400 <= budget.num_slots <= 1750
    unused = budget.headroom_bytes - budget.margin_bytes
    assert 0 <= unused < budget.slot_bytes


def test_flagship_choices(flagship: ModelSpec) -> None:
    def slots(**changes: object) -> int:
        return plan(flagship, DESKTOP, replace(OPTIONS, context_tokens=32_768, **changes)).num_slots

    assert slots(overlap=False) - slots() in (9, 10)
    assert slots(dense="fp8") > slots() + 700
    assert slots(kv="host") > slots() + 250
    assert slots(num_slots=100) == 100
    chosen = plan(flagship, DESKTOP, OPTIONS)
    assert chosen.fits
    assert 4096 <= chosen.context_tokens < 262_144
    on_a_big_card = plan(flagship, replace(DESKTOP, vram_free_bytes=139 * GIB), OPTIONS)
    assert (on_a_big_card.num_slots, on_a_big_card.context_tokens) == (24_576, 262_144)


def test_flagship_refusals_name_what_fits(flagship: ModelSpec) -> None:
    too_long = plan(flagship, DESKTOP, replace(OPTIONS, context_tokens=262_144))
    assert_adds_up(too_long)
    assert "131,072 tokens fit: set --context 131072" in too_long.reason
    small_card = plan(flagship, replace(DESKTOP, vram_free_bytes=10 * GIB), OPTIONS)
    assert "set --dense fp8" in small_card.reason
    tiny_card = plan(flagship, replace(DESKTOP, vram_free_bytes=3 * GIB), OPTIONS)
    assert "smaller model" in tiny_card.reason
    too_many = plan(flagship, DESKTOP, replace(OPTIONS, context_tokens=4096, num_slots=20_000))
    number = int(re.search(r"set --slots (\d+)", too_many.reason)[1])  # type: ignore[index]
    assert plan(flagship, DESKTOP, replace(OPTIONS, context_tokens=4096, num_slots=number)).fits
    assert not plan(flagship, DESKTOP, replace(OPTIONS, context_tokens=4096, num_slots=number + 1)).fits
    little_ram = plan(flagship, replace(DESKTOP, ram_available_bytes=10**9), OPTIONS)
    assert "main memory" in little_ram.reason
    assert "even with its experts on the disk" in little_ram.reason


@pytest.mark.parametrize("machine", [LAPTOP, DESKTOP])
def test_too_small_a_ram_limit_names_the_smallest_that_works(small: ModelSpec, machine: Machine) -> None:
    def plan_with(ram_bytes: int) -> BudgetPlan:
        limited = replace(machine, ram_total_bytes=ram_bytes, ram_available_bytes=ram_bytes)
        return plan(small, limited, replace(OPTIONS, ram_bytes=ram_bytes))

    reason = plan_with(MIB).reason
    assert "--ram is 1.0 MiB" in reason
    assert "close other programs" not in reason
    number = int(re.search(r"set --ram (\d+)MiB or more", reason)[1])  # type: ignore[index]
    assert plan_with(number * MIB).fits
    assert not plan_with((number - 16) * MIB).fits
    held_by_others = plan(small, replace(machine, ram_available_bytes=MIB), replace(OPTIONS, ram_bytes=2 * MIB))
    assert "close other programs" in held_by_others.reason


def test_flagship_maps_the_table_where_memory_is_short(flagship: ModelSpec) -> None:
    budget = plan(flagship, replace(DESKTOP, ram_available_bytes=90 * 10**9), OPTIONS)
    assert budget.fits
    assert budget.is_ngram_table_mapped
    assert not budget.is_store_mapped
    assert budget.ngram_table_bytes == 0
    assert not plan(flagship, DESKTOP, OPTIONS).is_ngram_table_mapped


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_flagship_starts_on_a_machine_of_32_gb(flagship: ModelSpec, device: str) -> None:
    ram_bytes = 32 * 10**9
    machine = replace(DESKTOP, device=device, ram_total_bytes=ram_bytes, ram_available_bytes=ram_bytes - 2 * 10**9)
    budget = plan(flagship, machine, OPTIONS)
    assert_adds_up(budget)
    assert budget.fits
    assert budget.is_store_mapped
    assert budget.is_ngram_table_mapped
    store = next(line for line in budget.lines if line.name == "store")
    assert store.why.startswith(f"{budget.num_cached_records:,} of 24,576 routed experts")
    in_ram = budget.host_bytes + (budget.device_bytes if device == "cpu" else 0)
    spare_bytes = machine.ram_available_bytes - 512 * MIB - in_ram
    assert 0 <= spare_bytes < 2 * budget.slot_bytes


def test_experts_are_mapped_only_where_they_must_be(small: ModelSpec) -> None:
    options = replace(OPTIONS, context_tokens=4096)
    roomy = plan(small, LAPTOP, options)
    assert not roomy.is_store_mapped
    assert roomy.num_cached_records == 384
    with_few_slots = roomy.total_bytes - roomy.slots_bytes + 4 * roomy.slot_bytes + 512 * MIB
    just_enough = plan(small, replace(LAPTOP, ram_available_bytes=with_few_slots), options)
    assert (just_enough.fits, just_enough.is_store_mapped) == (True, False)
    too_little = plan(small, replace(LAPTOP, ram_available_bytes=with_few_slots - 16 * MIB), options)
    assert (too_little.fits, too_little.is_store_mapped) == (True, True)
    assert 16 <= too_little.num_cached_records < 384
    assert too_little.num_slots > 4


def test_small_model_on_a_cpu_keeps_half_of_the_experts(small: ModelSpec) -> None:
    budget = plan(small, LAPTOP, OPTIONS)
    assert_adds_up(budget)
    assert budget.fits
    assert (budget.num_slots, budget.context_tokens, budget.max_sequences) == (192, 8192, 4)
    assert "half" in next(line.why for line in budget.lines if line.name == "slots")
    assert budget.limit_bytes is None
    assert budget.overlap_bytes == budget.graphs_bytes == budget.context_bytes == 0
    assert budget.total_bytes < GIB


def test_vram_on_a_cpu_makes_slots_scarce(small: ModelSpec) -> None:
    needed = plan(small, LAPTOP, replace(OPTIONS, vram_bytes=1024))
    assert_adds_up(needed)
    assert "--vram is 1.0 KiB" in needed.reason
    least = int(re.search(r"set --vram (\d+)MiB", needed.reason)[1])  # type: ignore[index]
    budgets = [plan(small, LAPTOP, replace(OPTIONS, vram_bytes=n * MIB)) for n in range(least, least + 60, 4)]
    assert all(budget.fits for budget in budgets)
    for budget in budgets:
        assert_adds_up(budget)
        assert budget.device_bytes + budget.margin_bytes <= (budget.limit_bytes or 0)
    assert budgets[0].num_slots < 100
    assert budgets[-1].num_slots == 384
    assert not plan(small, LAPTOP, replace(OPTIONS, vram_bytes=(least - 2) * MIB)).fits


@pytest.mark.parametrize(("num_slots", "max_sequences"), [(4, 1), (7, 1), (8, 2), (16, 4), (384, 4), (9999, 4)])
def test_slots_are_exact_and_bound_the_batch(small: ModelSpec, num_slots: int, max_sequences: int) -> None:
    budget = plan(small, LAPTOP, replace(OPTIONS, num_slots=num_slots))
    assert budget.fits
    assert budget.num_slots == min(num_slots, 384)
    assert budget.max_sequences == max_sequences


@pytest.mark.parametrize("num_slots", [0, 1, 3])
def test_fewer_slots_than_a_token_routes_are_refused(small: ModelSpec, num_slots: int) -> None:
    budget = plan(small, LAPTOP, replace(OPTIONS, num_slots=num_slots))
    assert not budget.fits
    assert budget.reason.startswith(f"{num_slots} expert slots are too few")
    assert "--slots 4" in budget.reason


def test_the_check_mode_of_a_cpu_holds_some_weights_in_fp64(small: ModelSpec) -> None:
    in_chat, in_check_mode = (plan(small, LAPTOP, replace(OPTIONS, dtype=dtype)) for dtype in ("auto", "fp32"))
    assert_adds_up(in_check_mode)
    assert in_check_mode.dense_bytes - in_chat.dense_bytes == 4 * sizes.residual_params(small)
    assert in_check_mode.workspace_bytes > in_chat.workspace_bytes
    assert next(line for line in in_check_mode.lines if line.name == "dense").why.endswith("fp32, some in fp64")


@pytest.mark.parametrize("context_tokens", [0, 8193])
def test_a_context_the_model_does_not_know_is_refused(small: ModelSpec, context_tokens: int) -> None:
    budget = plan(small, LAPTOP, replace(OPTIONS, context_tokens=context_tokens))
    assert not budget.fits
    assert "8192" in budget.reason


@settings(max_examples=150, deadline=None)
@given(
    vram_mib=st.none() | st.integers(0, 40_000),
    free_mib=st.integers(0, 140_000),
    ram_mib=st.integers(0, 200_000),
    num_slots=st.none() | st.integers(0, 30_000),
    context_tokens=st.none() | st.integers(0, 300_000),
    device=st.sampled_from(["cpu", "cuda"]),
    dense=st.sampled_from(["auto", "bf16", "fp8"]),
    kv=st.sampled_from(["device", "host"]),
)
def test_any_plan_adds_up_and_keeps_its_limits(
    flagship: ModelSpec,
    small: ModelSpec,
    vram_mib: int | None,
    free_mib: int,
    ram_mib: int,
    num_slots: int | None,
    context_tokens: int | None,
    device: str,
    dense: str,
    kv: str,
) -> None:
    machine = Machine(device, free_mib * MIB if device == "cuda" else None, ram_mib * MIB, ram_mib * MIB, 2)
    options = replace(
        OPTIONS,
        vram_bytes=None if vram_mib is None else vram_mib * MIB,
        num_slots=num_slots,
        context_tokens=context_tokens,
        dense=dense,  # type: ignore[arg-type]
        kv=kv,  # type: ignore[arg-type]
    )
    for spec in (flagship, small):
        budget = plan(spec, machine, options)
        assert_adds_up(budget)
        if budget.fits:
            in_ram = budget.host_bytes + (budget.device_bytes if device == "cpu" else 0)
            assert in_ram <= machine.ram_available_bytes
            assert budget.num_slots >= spec.moe.num_experts_per_token
            num_experts = spec.num_layers * spec.moe.num_experts
            assert budget.num_cached_records <= num_experts
            assert budget.is_store_mapped or budget.num_cached_records == num_experts
            assert budget.num_cached_records >= min(num_experts, 2 * budget.num_ring_slots)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(budget_module, "LONG_STEP_CHUNKS", 1)
            without = plan(spec, machine, options)
        # Long steps cost one part in eight of slots and records, and nothing else.
        assert (budget.fits, budget.context_tokens) == (without.fits, without.context_tokens)
        num_records, num_without = (one.num_slots + one.num_cached_records for one in (budget, without))
        assert not budget.fits or num_records >= num_without * 7 // 8 - 2


def test_a_long_step_takes_the_memory_that_is_planned_for_it(flagship: ModelSpec) -> None:
    row_bytes = sizes.state_row_bytes(flagship, 4)
    # A card's chunks are undone where memory runs out, too, and side calls share them.
    for kind, num_rows in ((LAPTOP, 1), (DESKTOP, 3)):
        machine = replace(kind, ram_available_bytes=32 * GIB)
        budget = plan(flagship, machine, replace(OPTIONS, context_tokens=32768))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(budget_module, "LONG_STEP_CHUNKS", 1)
            without = plan(flagship, machine, replace(OPTIONS, context_tokens=32768))
        assert budget.is_store_mapped
        assert (budget.num_step_chunks, without.num_step_chunks) == (16, 1)
        others = 15 * OPTIONS.chunk_tokens
        assert budget.workspace_bytes - without.workspace_bytes == others * (4 * 2560 * 4 + 64 * 4)
        assert (budget.saved_state_bytes, without.saved_state_bytes) == (num_rows * row_bytes, 0)
        [why] = [line.why for line in budget.lines if line.name == "workspace"]
        assert why == "activations of 256 tokens; a prompt's experts are read once for 4,096"


def test_more_slots_than_experts_are_no_reason_for_short_steps(flagship: ModelSpec) -> None:
    machine = replace(DESKTOP, vram_free_bytes=120 * GIB, ram_available_bytes=32 * GIB)
    for num_slots in (48 * 512, 10**6):
        assert plan(flagship, machine, replace(OPTIONS, num_slots=num_slots)).num_step_chunks == 16


@pytest.mark.parametrize("kv", ["device", "host"])
def test_few_keys_and_values_are_wide(flagship: ModelSpec, small: ModelSpec, kv: str) -> None:
    """fp32 within 64 MiB on a card, else fp16; always fp32 in the check mode and on a CPU."""
    options = replace(OPTIONS, kv=kv)  # type: ignore[arg-type]
    for spec, is_wide in ((flagship, False), (small, True)):
        budget = plan(spec, DESKTOP, options)
        assert budget.has_wide_kv is is_wide
        page_bytes = sizes.kv_page_bytes(spec, 4 if is_wide else 2)
        assert budget.kv_bytes + budget.host_kv_bytes == budget.num_pages * page_bytes
        wide_page_bytes = sizes.kv_page_bytes(spec, 4) + sizes.index_key_page_bytes(spec, 4)
        assert is_wide == (budget.num_pages * wide_page_bytes <= 64 * MIB)
        assert plan(spec, DESKTOP, replace(options, dtype="fp32")).has_wide_kv
    assert plan(flagship, LAPTOP, OPTIONS).has_wide_kv


def test_constants_are_those_of_the_ops() -> None:
    assert attention.QUERY_TILE == sizes.QUERY_TILE
    assert experts.SCRATCH_BYTES == sizes.EXPERT_SCRATCH_BYTES
