"""A few MoE blocks one after the other, as a decode step runs them: router, ensure, miss copy, experts, shared expert.

The engine's own parts over random weights; only the router's choice is injected.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.benches.injection import InjectedRouting
from runtime.benches.synthetic import NAMES, RandomTensors, random_store
from runtime.execute.decode_graph import DecodeStep
from runtime.execute.overlap import OverlapLevel
from runtime.execute.streams import DecodeStreams, StreamBranches
from runtime.experts.branches import Branches, SerialBranches
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.device_slots import DeviceSlots
from runtime.experts.store import PinnedStore
from runtime.kernels.ops import Ops
from runtime.layers.dense_weights import DenseWeights
from runtime.layers.moe import MoeBlock
from runtime.spec import ModelSpec


class MoeStack:
    """`trace` int64 [steps, layers, rows, k] is what step after step routes to. Everything runs on the compute stream
    of `streams`; None on a CPU."""

    def __init__(
        self,
        spec: ModelSpec,
        trace: NDArray[np.int64],
        num_slots: int,
        ops: Ops,
        device: torch.device,
        streams: DecodeStreams | None,
        policy: str = "lru",
        store: PinnedStore | None = None,
    ) -> None:
        self.spec, self.streams, self.device = spec, streams, device
        self.num_rows = trace.shape[2]
        self.routing = InjectedRouting(trace, device, spec.moe.num_experts)
        ops = self.routing.ops(ops)
        self._ops = ops
        source: Any = RandomTensors(spec, device)
        weights = DenseWeights(source, device, torch.bfloat16, spec.norm_adds_one)
        routed_alone = replace(spec, moe=replace(spec.moe, shared_intermediate=None))
        self._blocks, self._blocks_without_shared = (
            [MoeBlock(own, weights, NAMES, layer, ops) for layer in range(spec.num_layers)]
            for own in (spec, routed_alone)
        )
        self._scale = torch.ones(spec.hidden_size, device=device)
        self.store = store or random_store(spec, spec.num_layers)
        if device.type == "cuda" and store is None:
            self.store.pin()
        self.experts = self._new_experts(num_slots, policy)
        generator = torch.Generator().manual_seed(1)
        self.hidden = torch.randn(self.num_rows, spec.hidden_size, generator=generator).to(device)
        self.outputs = torch.zeros(spec.num_layers, self.num_rows, spec.hidden_size, device=device)

    def resize(self, num_slots: int) -> None:
        """Other slots, all empty; steps must be captured again."""
        self.experts = self._new_experts(num_slots, self.experts.cache.policy)

    def step(self, level: OverlapLevel, is_captured: bool, has_shared: bool = True) -> DecodeStep:
        """A step at a level, with or without shared experts, warmed up; afterwards slots and trace are as new."""
        branches: Branches = SerialBranches()
        if self.streams is not None:
            branches = StreamBranches(self.streams, level)
        blocks = self._blocks if has_shared else self._blocks_without_shared
        step = DecodeStep(partial(self._launch, blocks), branches)
        step.run()
        self.reset()
        if is_captured and self.streams is not None:
            self.streams.compute.synchronize()
            step.capture(torch.cuda.graph_pool_handle(), self.streams.compute)
        return step

    def reset(self) -> None:
        """Empty slots, a policy and counters as new, the trace from its start."""
        self.experts.cache.reset()
        self.routing.rewind()

    def _new_experts(self, num_slots: int, policy: str) -> DeviceExperts:
        spec, num_choices = self.spec, self.spec.moe.num_experts_per_token
        cache = DeviceSlots(
            spec.num_layers, spec.moe.num_experts, num_slots, policy,
            num_choices=num_choices, max_rows=self.num_rows, num_ring_slots=1, device=self.device,
        )  # fmt: skip
        return DeviceExperts(self.store, cache, self._ops, self.device, num_choices)

    @torch.inference_mode()
    def _launch(self, blocks: list[MoeBlock], branches: Branches) -> Tensor:
        self.experts.begin_step()
        self.routing.begin_step()
        hidden = self.hidden
        for layer, block in enumerate(blocks):
            output = block.decode(hidden, self.experts, branches)
            self.outputs[layer].copy_(output)
            hidden = self._ops.rms_norm(hidden + output, self._scale, 1e-6)
        return hidden
