"""Memory of decode's routed experts at one geometry (host banks, slots, slot map), and a layer's launches over it."""

import copy
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from runtime.experts.policy import make_policy
from runtime.experts.slot_cache import SlotCache
from runtime.kernels.torch_ops.slots import SlotState
from runtime.kernels.triton_ops import copying, experts, router, slots
from runtime.record import RecordLayout


@dataclass(frozen=True)
class Geometry:
    hidden: int = 2560
    intermediate: int = 640
    num_experts: int = 512
    num_choices: int = 10
    num_layers: int = 6
    """Each with a host bank of its own."""
    num_slots: int = 1650

    @property
    def layout(self) -> RecordLayout:
        return RecordLayout.build(self.hidden, self.intermediate, "nvfp4")


class ExpertMemory:
    """Random records: finite numbers, whatever the bytes."""

    def __init__(self, geometry: Geometry, device: torch.device) -> None:
        self.geometry, self.device = geometry, device
        record_bytes = geometry.layout.record_bytes
        noise = torch.randint(0, 256, (64, record_bytes), dtype=torch.uint8)
        self._fix_scales(noise)
        self.banks = [self._bank(noise, layer) for layer in range(geometry.num_layers)]
        self.pool = noise.to(device)[torch.arange(geometry.num_slots, device=device) % len(noise)]

    @property
    def num_host_bytes(self) -> int:
        return sum(bank.nbytes for bank in self.banks)

    def _fix_scales(self, records: Tensor) -> None:
        """Global scales that keep outputs near 1; any byte is a finite code or block scale."""
        layout = self.geometry.layout
        scales = torch.full((len(records), 3), 1e-4).view(torch.uint8)
        records[:, layout.global_scale_offset : layout.global_scale_offset + 12] = scales

    def _bank(self, noise: Tensor, layer: int) -> Tensor:
        is_cuda = self.device.type == "cuda"
        shape = (self.geometry.num_experts, self.geometry.layout.record_bytes)
        # Pinned by torch itself, so that a captured copy knows it.
        bank = torch.empty(shape, dtype=torch.uint8, pin_memory=is_cuda)
        for first in range(0, len(bank), len(noise)):
            part = bank[first : first + len(noise)]
            part.copy_(noise.roll(layer + first, 0)[: len(part)])
        return bank


@dataclass(frozen=True)
class Routing:
    """What one iteration routes, in a layer: logits fp32 [R, E] on the device."""

    layer: int
    logits: Tensor
    hidden: Tensor


class SlotMap:
    """A full slot map under a policy, on the device and beside it on the host; and routings with a chosen number of
    misses, no expert twice among them."""

    def __init__(self, memory: ExpertMemory, policy: str, seed: int = 0) -> None:
        self._memory, self.policy = memory, policy
        self._rng = np.random.default_rng(seed)
        geometry = memory.geometry
        self._cache = SlotCache(
            geometry.num_layers, geometry.num_experts, geometry.num_slots,
            make_policy(policy, geometry.num_layers, geometry.num_experts),
            num_choices=geometry.num_choices, max_rows=4,
        )  # fmt: skip
        self.state = SlotState.empty(
            geometry.num_layers, geometry.num_experts, geometry.num_slots, 4 * geometry.num_choices, memory.device
        )
        while self._cache.num_used < geometry.num_slots:
            self._step()
        self._full = {field.name: getattr(self.state, field.name).clone() for field in fields(self.state)}

    def restore(self) -> None:
        """As it was when full: every replay then does the same."""
        for name, tensor in self._full.items():
            getattr(self.state, name).copy_(tensor)

    def routings(self, num_iterations: int, num_rows: int, num_missed: int) -> list[Routing]:
        """One after another from the full map; `num_missed` of rows x k are not in a slot when their turn comes."""
        geometry = self._memory.geometry
        self._used = np.zeros((geometry.num_layers, geometry.num_experts), bool)
        was = copy.deepcopy(self._cache)
        made = [self._route(i % geometry.num_layers, num_rows, num_missed) for i in range(num_iterations)]
        self._cache = was
        return made

    def _route(self, layer: int, num_rows: int, num_missed: int) -> Routing:
        geometry, rng = self._memory.geometry, self._rng
        experts_of_layer = np.arange(geometry.num_experts)
        is_resident = self._cache.slots_of(layer, experts_of_layer) >= 0
        num_hits = num_rows * geometry.num_choices - num_missed
        hits = rng.choice(np.flatnonzero(is_resident & ~self._used[layer]), num_hits, replace=False)
        misses = rng.choice(np.flatnonzero(~is_resident & ~self._used[layer]), num_missed, replace=False)
        chosen = rng.permutation(np.concatenate([hits, misses])).reshape(num_rows, geometry.num_choices)
        self._used[layer, chosen] = True
        logits = rng.uniform(-8, -6, (num_rows, geometry.num_experts)).astype(np.float32)
        np.put_along_axis(logits, chosen, rng.uniform(0, 3, chosen.shape).astype(np.float32), 1)
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : geometry.num_choices]
        plan = self._cache.ensure(layer, ids, logits)
        assert len(plan.missed) == num_missed
        device = self._memory.device
        hidden = torch.randn(num_rows, geometry.hidden, device=device)
        return Routing(layer, torch.from_numpy(logits).to(device), hidden)

    def _step(self) -> None:
        """One decode step of random routing, on both sides."""
        geometry, device = self._memory.geometry, self._memory.device
        self._cache.begin_step()
        slots.begin_step(self.state)
        for layer in range(geometry.num_layers):
            logits = self._rng.normal(size=(1, geometry.num_experts)).astype(np.float32)
            ids = np.argsort(-logits, axis=1, kind="stable")[:, : geometry.num_choices]
            self._cache.ensure(layer, ids, logits)
            device_ids = torch.from_numpy(ids).to(device)
            slots.ensure(self.state, self.policy, layer, device_ids, torch.from_numpy(logits).to(device), 0)


class Layer:
    """The launches of one layer, from top-k to the summed routes, and its parts."""

    def __init__(self, memory: ExpertMemory, slot_map: SlotMap) -> None:
        self._memory, self._map = memory, slot_map

    def route(self, routing: Routing) -> tuple[Tensor, Tensor]:
        return router.route(routing.logits, self._memory.geometry.num_choices, renormalises=True)

    def ensure(self, routing: Routing, expert_ids: Tensor, num_warps: int | None = None) -> tuple[Tensor, Tensor]:
        record_bytes = self._memory.geometry.layout.record_bytes
        return slots.ensure(
            self._map.state, self._map.policy, routing.layer, expert_ids, routing.logits, record_bytes, num_warps
        )

    def copy(self, routing: Routing) -> None:
        copying.copy_missed(self._map.state, self._memory.banks[routing.layer], self._memory.pool)

    def compute(self, routing: Routing, slot_ids: Tensor, tuning: experts.Tuning = experts.DEFAULT_TUNING) -> Tensor:
        layout = self._memory.geometry.layout
        return experts.expert_rows(layout, self._memory.pool, slot_ids, routing.hidden, tuning=tuning)

    def run(self, routing: Routing) -> Tensor:
        """All of it."""
        ids, weights = self.route(routing)
        slot_ids, _ = self.ensure(routing, ids)
        self.copy(routing)
        return router.combine_routes(self.compute(routing, slot_ids), weights)

    def run_by_arrival(self, routing: Routing, tuning: experts.Tuning = experts.DEFAULT_TUNING) -> Tensor:
        """The same, with experts computed as they arrive."""
        memory = self._memory
        ids, weights = self.route(routing)
        _, arrivals = self.ensure(routing, ids)
        bank, layout = memory.banks[routing.layer], memory.geometry.layout
        rows = experts.expert_rows_by_arrival(
            layout, self._map.state, bank, memory.pool, arrivals, routing.hidden, tuning=tuning
        )
        return router.combine_routes(rows, weights)


def work_lists(
    slot_map: SlotMap, memory: ExpertMemory, num_lists: int, num_missed: int, seed: int = 1
) -> list[SlotState]:
    """States that differ in their list of misses alone: random experts into random slots."""
    generator = torch.Generator().manual_seed(seed)

    def draw(num_choices: int) -> Tensor:
        return torch.randperm(num_choices, generator=generator)[: max(num_missed, 1)].int().to(memory.device)

    geometry = memory.geometry
    count = torch.tensor([num_missed], dtype=torch.int32, device=memory.device)
    return [
        replace(
            slot_map.state,
            missed_experts=draw(geometry.num_experts),
            missed_slots=draw(geometry.num_slots),
            num_missed=count,
        )
        for _ in range(num_lists)
    ]
