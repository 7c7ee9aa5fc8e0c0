"""Random weights in the shapes of a published model: dense tensors made on the device, expert records on the host."""

import math
import mmap
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runtime.checkpoint.files import CheckpointFiles, TensorEntry
from runtime.checkpoint.page_reader import PendingPages
from runtime.experts.pinning import PAGE_BYTES, pin
from runtime.experts.store import PinnedStore
from runtime.families.dense_tensors import dense_tensors
from runtime.families.names import NameMap, is_hash_buffer
from runtime.families.ngram_hash import NgramHash, ngram_hash
from runtime.families.registry import read_spec
from runtime.memory.probe import count_cores
from runtime.record import RecordLayout
from runtime.spec import ExpertFormat, ModelSpec

NAMES = NameMap("model.")
_SEED = 20_260_826
_PRIVATE: Any = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
_DISTINCT_RECORDS = 64
"""Random bytes are slow to draw; what is copied and computed does not depend on them."""
_TABLE_BASE = 1_000_000
"""Rows per head of the n-gram table. The published 20,000,000 take 47.7 GiB; a lookup reads the same 16 rows."""

FLAGSHIP: dict[str, Any] = {
    "model_type": "qwen4_exp", "hidden_act": "silu", "rms_norm_eps": 1e-6, "attention_bias": False,
    "hidden_size": 2560, "num_hidden_layers": 48, "num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "output_gate_type": "sigmoid",
    "full_attention_interval": 4, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 640,
    "shared_expert_intermediate_size": 640, "vocab_size": 248320, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    "eos_token_id": 248044, "hc_count": 4, "hc_lowrank": 320, "ple_layer_ids": [2], "ple_embed_dim": 2560,
    "ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 8, "ngram_vocab_size_base": _TABLE_BASE,
    "split_ngram_parts": 1, "make_ngram_vocab_size_divisible_by": 128, "indexer_n_heads": 4, "indexer_kv_heads": 1,
    "indexer_head_dim": 128, "indexer_budget": 2048, "indexer_compress_ratio": 4, "tie_word_embeddings": False,
}  # fmt: skip
TINY: dict[str, Any] = FLAGSHIP | {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 32, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32, "num_experts": 24,
    "num_experts_per_tok": 4, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "vocab_size": 512,
    "max_position_embeddings": 4096, "eos_token_id": 511, "ple_layer_ids": [1], "hc_lowrank": 16, "ple_embed_dim": 256,
    "ngram_vocab_size_base": 100, "indexer_head_dim": 32, "indexer_budget": 64,
}  # fmt: skip


def synthetic_spec(config: dict[str, Any], num_layers: int, expert_format: ExpertFormat = "nvfp4") -> ModelSpec:
    """The spec of a config with so many layers, every fourth of which (of fewer than four, the last) has attention."""
    every = min(4, num_layers)
    kinds = ["full_attention" if (layer + 1) % every == 0 else "linear_attention" for layer in range(num_layers)]
    spec = read_spec(config | {"num_hidden_layers": num_layers, "layer_types": kinds}, "synthetic")
    layout = RecordLayout.build(spec.hidden_size, spec.moe.intermediate, expert_format)
    weights = replace(spec.weights, expert_format=expert_format, record_bytes=layout.record_bytes, layer_formats=())
    return replace(spec, weights=weights)


class RandomTensors:
    """Stands in for a checkpoint's `TensorSource`: every dense tensor is drawn when it is asked for."""

    def __init__(self, spec: ModelSpec, device: torch.device) -> None:
        self._device = device
        self._generator = torch.Generator(device).manual_seed(_SEED)
        entries = {name: _entry(name, "BF16", shape) for name, shape in dense_tensors(spec, NAMES).items()}
        self._hashes: dict[str, NgramHash] = {}
        for index, layer in enumerate(spec.ngram.layer_indices if spec.ngram else ()):
            assert spec.ngram is not None
            constants = ngram_hash(spec.ngram, spec.vocab_size, index)
            stem = NAMES.of_ngram_table(layer)
            entries[f"{stem}.weight"] = _entry(f"{stem}.weight", "F8_E4M3", (constants.table_rows, spec.ngram.head_dim))
            entries[f"{stem}.weight_scale"] = _entry(f"{stem}.weight_scale", "F32", ())
            self._hashes[NAMES.of_layer(layer, "ple.ple_embedding.")] = constants
        self.files = CheckpointFiles(Path("random weights"), {}, entries, (), 0)

    def has(self, name: str) -> bool:
        return name in self.files.entries

    def announce(self, entry: TensorEntry, begin: int, end: int) -> PendingPages:
        """Nothing is on a disk."""
        there = PendingPages()
        there.set_result(None)
        return there

    def pieces(self, entry: TensorEntry, stored: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """All of it at once: nothing is on a disk."""
        yield stored, target

    def release_pages(self) -> None:
        """Nothing is mapped."""

    def get(self, name: str) -> Tensor:
        """A random tensor that keeps activations near 1: matrices by their width, norms near 0 or 1."""
        entry = self.files.find(name)
        if is_hash_buffer(name):
            stem, part = name.rsplit(".", 1)
            constants = self._hashes[stem + "."]
            fields = {"layer_multipliers": "multipliers", "ngram_heads_vocab_sizes": "head_sizes"}
            return torch.tensor(getattr(constants, fields.get(part, "head_offsets")))
        if entry.dtype == "F8_E4M3":
            # Bytes of numbers up to 1, without NaN.
            shape = entry.shape
            codes = torch.randint(0, 0x38, shape, dtype=torch.uint8, device=self._device, generator=self._generator)
            return codes.view(torch.float8_e4m3fn)
        if name.endswith("weight_scale"):
            return torch.tensor(0.1)
        return self._draw(name, entry.shape)

    def _draw(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("A_log"):
            values = torch.rand(shape, device=self._device, generator=self._generator)
            return values.mul_(2.0).to(torch.bfloat16)
        values = torch.randn(shape, device=self._device, dtype=torch.bfloat16, generator=self._generator)
        if len(shape) == 1:
            return values.mul_(0.1).add_(1.0 if "linear_attn.norm" in name else 0.0)
        return values.mul_(1.0 / math.sqrt(shape[-1]))


def random_bank(layout: RecordLayout, num_experts: int) -> Tensor:
    """uint8 [num_experts, record_bytes]: valid records whose experts keep activations near 1."""
    if layout.expert_format != "nvfp4":
        return _plain_bank(layout, num_experts)
    rng = np.random.default_rng(0)
    num_drawn = min(num_experts, _DISTINCT_RECORDS)
    drawn = np.frombuffer(rng.bytes(num_drawn * layout.record_bytes), np.uint8).reshape(num_drawn, -1)
    bank = np.tile(drawn, (-(-num_experts // num_drawn), 1))[:num_experts]
    for begin, end in (
        (layout.gate_up_scale_offset, layout.down_offset), (layout.down_scale_offset, layout.global_scale_offset)
    ):  # fmt: skip
        # e4m3 numbers from 0.5 to 1.875.
        bank[:, begin:end] = 0x30 | (bank[:, begin:end] & 0x0F)
    bank[:, layout.global_scale_offset :] = 0
    widths = np.array([layout.hidden, layout.hidden, layout.intermediate], np.float32)
    scales = (1.0 / (3.0 * np.sqrt(widths))).astype(np.float32).view(np.uint8)
    bank[:, layout.global_scale_offset : layout.global_scale_offset + 12] = scales
    return torch.from_numpy(bank)


def _plain_bank(layout: RecordLayout, num_experts: int) -> Tensor:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[layout.expert_format]
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(num_experts, 3 * layout.hidden * layout.intermediate, generator=generator)
    values /= math.sqrt(layout.hidden)
    bank = torch.zeros(num_experts, layout.record_bytes, dtype=torch.uint8)
    filled = values.to(dtype).view(torch.uint8)
    bank[:, : filled.shape[1]] = filled
    return bank


class StoreFilling:
    """Fills host banks on threads of its own while the caller does other things; `store` waits for them.

    With fewer banks than layers, layers share them in turn. Owns the banks' page locks: it must outlive its stores.
    """

    def __init__(self, spec: ModelSpec, num_banks: int, is_pinned: bool) -> None:
        self._num_layers, self._layouts = spec.num_layers, RecordLayout.of_layers(spec)
        self._is_pinned, self._num_pinned = is_pinned, 0
        template = random_bank(self._layouts[0], spec.moe.num_experts)
        self._pool = ThreadPoolExecutor(max(1, min(num_banks, count_cores())), thread_name_prefix="bank")
        self._banks = [self._pool.submit(_filled, template) for _ in range(min(num_banks, spec.num_layers))]

    def first_bank_alone(self) -> PinnedStore:
        """A store whose layers all read the first bank, as soon as that is there: to try kernels with."""
        return self._store(self._banks[:1])

    def store(self) -> PinnedStore:
        """All banks. Raises EngineError where the system refuses to lock their pages."""
        store = self._store(self._banks)
        self._pool.shutdown()
        return store

    def _store(self, filled: "list[Future[Tensor]]") -> PinnedStore:
        banks = []
        for index, future in enumerate(filled):
            banks.append(future.result())
            if self._is_pinned and index == self._num_pinned:
                # By this thread, since the driver takes one at a time, while the others fill.
                pin([banks[index]], self)
                self._num_pinned += 1
        return PinnedStore([banks[layer % len(banks)] for layer in range(self._num_layers)], self._layouts)


def _filled(template: Tensor) -> Tensor:
    """A copy in memory of its own, in huge pages where there are any: less to fault in and to lock."""
    memory = mmap.mmap(-1, -(-template.nbytes // PAGE_BYTES) * PAGE_BYTES, **_PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    bank = torch.frombuffer(memory, dtype=torch.uint8, count=template.nbytes).view(template.shape)
    # On this thread alone; torch would start as many for each bank as there are cores.
    np.copyto(bank.numpy(), template.numpy())
    return bank


def random_store(spec: ModelSpec, num_banks: int) -> PinnedStore:
    """Banks of all layers, not page-locked yet."""
    return StoreFilling(spec, num_banks, is_pinned=False).store()


def _entry(name: str, dtype: str, shape: tuple[int, ...]) -> TensorEntry:
    element_bytes = {"BF16": 2, "F8_E4M3": 1, "F32": 4}[dtype]
    return TensorEntry(name, dtype, shape, Path("random weights"), 0, element_bytes * math.prod(shape))
