"""Routed experts computed from record bytes: y = W_down (SiLU(W_gate x) * W_up x), one row per route, fp32.

A pool is uint8 [records, record_bytes]; an expert is named by its row. Weights are dequantised inside the call, a few
records at a time, into buffers that are overwritten by the next few. The order of every sum is fixed by the record's
shape (decode) or by the number of rows that share an expert (groups): which row of the pool holds an expert, which
others are computed beside it and in which order never change a bit. Decode multiplies each route on its own, so its
bits don't depend on the batch either.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from runtime.kernels.torch_ops import fp8, nvfp4
from runtime.kernels.torch_ops.slots import SlotState, copy_missed
from runtime.record import FP8_BLOCK, RecordLayout

SCRATCH_BYTES = 8 << 20
"""Upper bound of the buffers (one expert is always allowed): small enough to stay in a CPU's cache."""
_NVFP4_BYTES_PER_BYTE = 4 + 8
"""Of scratch per record byte: its table index and its pair of fp32 values."""
_FP8_BYTES_PER_BYTE = 4 + 4
"""Its table index and its fp32 value."""
_PLAIN_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class ExpertWeights:
    """A few experts in fp32, valid until the next batch is loaded. Products are still to be multiplied by the scales.

    Every matrix starts on 64 bytes: BLAS libraries promise equal bits for equal alignment only.
    """

    gate_up: tuple[Tensor, ...]
    """Per expert [2 * intermediate, hidden], gate rows first."""
    down: tuple[Tensor, ...]
    """Per expert [hidden, intermediate]."""
    scales: Tensor | None
    """fp32 [experts, 3]: global scales of gate, up and down; None where the matrices are the weights themselves."""


def bytes_per_expert(layout: RecordLayout) -> int:
    """Scratch that one expert takes while it is computed."""
    if layout.expert_format == "nvfp4":
        return layout.record_bytes * _NVFP4_BYTES_PER_BYTE
    if layout.expert_format == "fp8":
        return layout.record_bytes * _FP8_BYTES_PER_BYTE
    return layout.record_bytes + 3 * layout.hidden * layout.intermediate * 4


class _Nvfp4Scratch:
    """Buffers kept between calls: fresh ones would cost a page fault per 4 KiB, five times the arithmetic."""

    def __init__(self, layout: RecordLayout, num_experts: int, device: torch.device) -> None:
        self._layout = layout
        self._all_pairs, self._all_scales = nvfp4.tables(device)
        self._indices = torch.empty(num_experts, layout.record_bytes, dtype=torch.int32, device=device)
        self._pairs = torch.empty(num_experts, layout.record_bytes, dtype=torch.float64, device=device)

    def load(self, pool: Tensor, rows: list[int]) -> ExpertWeights:
        """Look up every byte of the records, the scales' too: one lookup of all is faster than two of parts."""
        layout, num_experts = self._layout, len(rows)
        indices, pairs = self._indices[:num_experts], self._pairs[:num_experts]
        for expert_indices, row in zip(indices, rows, strict=True):
            expert_indices.copy_(pool[row])
        torch.index_select(self._all_pairs, 0, indices.view(-1), out=pairs.view(-1))
        scales = pool[:, layout.global_scale_offset : layout.global_scale_offset + 12].view(torch.float32)
        gate_up_shape, down_shape = (2 * layout.intermediate, layout.hidden), (layout.hidden, layout.intermediate)
        return ExpertWeights(
            self._matrices(num_experts, layout.gate_up_offset, layout.gate_up_scale_offset, gate_up_shape),
            self._matrices(num_experts, layout.down_offset, layout.down_scale_offset, down_shape),
            scales.index_select(0, torch.tensor(rows, device=pool.device)),
        )

    def _matrices(self, num_experts: int, offset: int, scale_offset: int, shape: tuple[int, int]) -> tuple[Tensor, ...]:
        num_rows, width = shape
        num_groups = -(-width // nvfp4.GROUP)
        values = self._pairs[:num_experts, offset : offset + num_rows * width // 2].view(torch.float32)
        scale_indices = self._indices[:num_experts, scale_offset : scale_offset + num_rows * num_groups].reshape(-1)
        factors = torch.index_select(self._all_scales, 0, scale_indices).view(num_experts, num_rows, num_groups)
        return nvfp4.apply_scales(values.unflatten(-1, shape), factors).unbind()


class _PlainScratch:
    """Plain records become fresh fp32 matrices."""

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._dtype = _PLAIN_DTYPES[layout.expert_format]

    def load(self, pool: Tensor, rows: list[int]) -> ExpertWeights:
        layout, records = self._layout, [pool[row] for row in rows]
        return ExpertWeights(
            tuple(self._matrix(r, layout.gate_up_offset, 2 * layout.intermediate, layout.hidden) for r in records),
            tuple(self._matrix(r, layout.down_offset, layout.hidden, layout.intermediate) for r in records),
            None,
        )

    def _matrix(self, record: Tensor, offset: int, num_rows: int, width: int) -> Tensor:
        values = record[offset : offset + num_rows * width * self._dtype.itemsize].view(self._dtype)
        return values.view(num_rows, width).to(torch.float32, copy=True)


class _Fp8Scratch:
    """FP8 records become fresh fp32 matrices."""

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout

    def load(self, pool: Tensor, rows: list[int]) -> ExpertWeights:
        layout, records = self._layout, [pool[row] for row in rows]
        gate_up_shape, down_shape = (2 * layout.intermediate, layout.hidden), (layout.hidden, layout.intermediate)
        return ExpertWeights(
            tuple(_fp8_matrix(r, layout.gate_up_offset, layout.gate_up_scale_offset, *gate_up_shape) for r in records),
            tuple(_fp8_matrix(r, layout.down_offset, layout.down_scale_offset, *down_shape) for r in records),
            None,
        )


def _fp8_matrix(record: Tensor, offset: int, scale_offset: int, num_rows: int, width: int) -> Tensor:
    num_groups = -(-width // FP8_BLOCK)
    scales = record[scale_offset : scale_offset + 4 * num_rows * num_groups].view(torch.float32)
    values = record[offset : offset + num_rows * width].view(num_rows, width)
    return fp8.dequantise(values, scales.view(num_rows, num_groups))


class ExpertCompute:
    """The experts of one record layout. Hidden states are fp32; nothing but the scratch is kept between calls."""

    def __init__(self, layout: RecordLayout, device: torch.device | str = "cpu") -> None:
        self._layout = layout
        self._device = device = torch.device(device)
        self._experts_per_batch = num_experts = max(1, SCRATCH_BYTES // bytes_per_expert(layout))
        if layout.expert_format == "nvfp4":
            self._scratch: _Nvfp4Scratch | _Fp8Scratch | _PlainScratch = _Nvfp4Scratch(layout, num_experts, device)
        elif layout.expert_format == "fp8":
            self._scratch = _Fp8Scratch(layout)
        else:
            self._scratch = _PlainScratch(layout)

    def decode(self, pool: Tensor, slots: Tensor, hidden: Tensor) -> Tensor:
        """fp32 [rows, k, hidden] of hidden [rows, hidden] and slots int64 [rows, k]."""
        inputs = self._aligned_rows(*hidden.shape).copy_(hidden)
        output = torch.empty(slots.numel(), self._layout.hidden, device=self._device)
        routes: dict[int, list[int]] = {}
        for route, slot in enumerate(slots.flatten().tolist()):
            routes.setdefault(slot, []).append(route)
        distinct = list(routes)
        for start in range(0, len(distinct), self._experts_per_batch):
            batch = distinct[start : start + self._experts_per_batch]
            pairs = [(expert, route) for expert, slot in enumerate(batch) for route in routes[slot]]
            rows = [inputs[route // slots.shape[1]] for _, route in pairs]
            batch_routes = torch.tensor([route for _, route in pairs], device=self._device)
            weights = self._scratch.load(pool, batch)
            output.index_copy_(0, batch_routes, self._multiply_routes(weights, [expert for expert, _ in pairs], rows))
        return output.view(*slots.shape, -1)

    def _multiply_routes(self, weights: ExpertWeights, experts: list[int], inputs: list[Tensor]) -> Tensor:
        """fp32 [routes, hidden]. Vector by vector: a matrix product's bits may depend on how many rows it has, and the
        exponential's on where in a longer tensor an element lies."""
        intermediate = self._layout.intermediate
        scales = (
            None
            if weights.scales is None
            else weights.scales.index_select(0, torch.tensor(experts, device=self._device))
        )
        gate_up = self._aligned_rows(len(experts), 2 * intermediate)
        for expert, row, products in zip(experts, inputs, gate_up, strict=True):
            torch.mv(weights.gate_up[expert], row, out=products)
        if scales is not None:
            gate_up.unflatten(-1, (2, intermediate)).mul_(scales[:, :2].unsqueeze(-1))
        for products in gate_up:
            functional.silu(products[:intermediate], inplace=True)
        activated = self._aligned_rows(len(experts), intermediate)
        torch.mul(gate_up[:, :intermediate], gate_up[:, intermediate:], out=activated)
        output = self._aligned_rows(len(experts), self._layout.hidden)
        for expert, row, products in zip(experts, activated, output, strict=True):
            torch.mv(weights.down[expert], row, out=products)
        return output if scales is None else output.mul_(scales[:, 2:])

    def groups(self, pool: Tensor, slots: list[int], routes: list[Tensor], hidden: Tensor, output: Tensor) -> None:
        """Compute experts one by one, each for all of its routes.

        `routes[i]` int64 are the flat route numbers (token * k + choice) of the expert in `slots[i]`; those rows of
        `output` fp32 [tokens * k, hidden] are written. hidden is fp32 [tokens, hidden].
        """
        num_choices = output.shape[0] // hidden.shape[0]
        for start in range(0, len(slots), self._experts_per_batch):
            weights = self._scratch.load(pool, slots[start : start + self._experts_per_batch])
            for expert, expert_routes in enumerate(routes[start : start + self._experts_per_batch]):
                rows = hidden.index_select(0, expert_routes // num_choices)
                output.index_copy_(0, expert_routes, self._multiply_rows(weights, expert, rows))

    def _multiply_rows(self, weights: ExpertWeights, expert: int, inputs: Tensor) -> Tensor:
        """fp32 [rows, hidden] of one expert."""
        gate_up = functional.linear(inputs, weights.gate_up[expert])
        if weights.scales is not None:
            gate_up.unflatten(-1, (2, -1)).mul_(weights.scales[expert, :2].unsqueeze(-1))
        gate, up = gate_up.chunk(2, -1)
        output = functional.linear(functional.silu(gate) * up, weights.down[expert])
        return output if weights.scales is None else output.mul_(weights.scales[expert, 2])

    def _aligned_rows(self, num_rows: int, width: int) -> Tensor:
        """Uninitialised fp32 [num_rows, width] whose every row starts on 64 bytes."""
        return torch.empty(num_rows, -(-width // 16) * 16, device=self._device)[:, :width]


@lru_cache(maxsize=16)
def _compute(layout: RecordLayout, device: torch.device) -> ExpertCompute:
    return ExpertCompute(layout, device)


def expert_rows(layout: RecordLayout, pool: Tensor, slots: Tensor, hidden: Tensor) -> Tensor:
    """fp32 [R, k, hidden] of hidden fp32 [R, hidden] and slots int32 [R, k]: `ExpertCompute.decode` for the device."""
    return _compute(layout, pool.device).decode(pool, slots, hidden)


def expert_rows_by_arrival(
    layout: RecordLayout, state: SlotState, bank: Tensor, pool: Tensor, arrivals: Tensor, hidden: Tensor
) -> Tensor:
    """`copy_missed` and `expert_rows` in one. `arrivals` int32 [3, R * k] and the work list are the last *ensure*'s."""
    copy_missed(state, bank, pool)
    slots = torch.empty_like(arrivals[1])
    slots[arrivals[0].long()] = arrivals[1]
    return expert_rows(layout, pool, slots.view(hidden.shape[0], -1), hidden)
