"""A model of random weights in one dense precision, and its decode steps under injected routing."""

import gc
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.benches.injection import InjectedRouting
from runtime.benches.synthetic import NAMES, RandomTensors
from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.execute.decode_graph import DecodeSteps
from runtime.execute.decode_inputs import DecodeInputs
from runtime.execute.overlap import OverlapLevel
from runtime.execute.streams import DecodeStreams
from runtime.experts.branches import Branches
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.device_slots import DeviceSlots
from runtime.experts.store import PinnedStore
from runtime.kernels.ops import Ops, select_ops
from runtime.layers.decoder import Decoder
from runtime.options import DenseName
from runtime.spec import PAGE_TOKENS, ModelSpec

Traces = dict[int, NDArray[np.int64]]
"""int64 [steps, layers, rows, k] by number of rows."""


class Rig:
    """Everything that a decode step needs but the experts. On a CPU `streams` is None and steps are plain calls."""

    def __init__(
        self,
        spec: ModelSpec,
        dense: DenseName,
        max_rows: int,
        position: int,
        device: torch.device,
        streams: DecodeStreams | None,
    ) -> None:
        self.spec, self.max_rows, self.position = spec, max_rows, position
        self.device, self.streams = device, streams
        num_pages = -(-(position + 1) // PAGE_TOKENS)
        self.inputs = DecodeInputs(max_rows, num_pages * PAGE_TOKENS, device)
        self.pages = PagePool(spec, num_pages * max_rows, device, torch.float16)
        # Zeros would tie: what selects blocks would have it easy.
        for held in (self.pages.keys, self.pages.values, self.pages.index_keys):
            if held is not None:
                held.normal_()
        self.states = StatePool(spec, max_rows, device)
        self.switch = _RouteSwitch(select_ops(device))
        source: Any = RandomTensors(spec, device)
        self.decoder = Decoder.build(
            spec, source, NAMES, device, torch.bfloat16, residual_dtype=torch.bfloat16, ops=self.switch.ops,
            is_fp8=dense == "fp8",
        )  # fmt: skip

    @property
    def dense_read_bytes(self) -> int:
        """What one step reads of the dense weights: all but the embedding, of which it reads a row."""
        return self.decoder.dense_bytes - 2 * self.spec.vocab_size * self.spec.hidden_size

    def on_compute_stream(self) -> AbstractContextManager[object]:
        return nullcontext() if self.streams is None else torch.cuda.stream(self.streams.compute)

    def experts(self, store: PinnedStore, policy: str, num_slots: int) -> DeviceExperts:
        """Empty slots under a policy."""
        moe = self.spec.moe
        cache = DeviceSlots(
            self.spec.num_layers, moe.num_experts, num_slots, policy,
            num_choices=moe.num_experts_per_token, max_rows=self.max_rows, num_ring_slots=1, device=self.device,
        )  # fmt: skip
        return DeviceExperts(store, cache, self.switch.ops, self.device, moe.num_experts_per_token)

    def free_bytes(self) -> int:
        """Of the device, with nothing left in torch's own hands; 0 on a CPU."""
        if self.device.type != "cuda":
            return 0
        gc.collect()
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self.device)[0]


class _RouteSwitch:
    """Ops whose router's choice and policy logits are those of `routing` while it is set."""

    def __init__(self, ops: Ops) -> None:
        self.routing: InjectedRouting | None = None
        self._route, self._ensure = ops.route, ops.ensure
        self.ops = replace(ops, route=self._injected_route, ensure=self._injected_ensure)

    def _injected_route(self, logits: Tensor, num_routed: int, renormalises: bool) -> Any:
        chosen = self._route(logits, num_routed, renormalises)
        return chosen if self.routing is None else (self.routing.next_layer(), chosen[1])

    def _injected_ensure(
        self, state: Any, policy: str, layer: int, expert_ids: Tensor, router_logits: Tensor, bytes_per_miss: int
    ) -> Any:
        if self.routing is not None:
            router_logits = self.routing.logits_of(layer)
        return self._ensure(state, policy, layer, expert_ids, router_logits, bytes_per_miss)


class RoutedSteps(DecodeSteps):
    """The engine's steps, routed by the trace of their number of rows; without traces by the router itself."""

    def __init__(self, rig: Rig, experts: DeviceExperts, routings: dict[int, InjectedRouting]) -> None:
        super().__init__(rig.decoder, rig.pages, rig.states, experts, rig.inputs, rig.streams)
        self._rig, self._routings = rig, routings

    def _launch(self, num_rows: int, branches: Branches) -> Tensor:
        self._rig.switch.routing = routing = self._routings.get(num_rows)
        if routing is not None:
            routing.begin_step()
        return super()._launch(num_rows, branches)

    def discard(self) -> None:
        """Let all graphs go, with their memory."""
        self._steps.clear()
        self._graph_pool = None


def try_kernels(rig: Rig, store: PinnedStore, policies: tuple[str, ...], num_slots: int) -> None:
    """Compile and load every kernel of the steps, by running one row of each way there is."""
    levels: tuple[OverlapLevel, ...] = ("off",) if rig.streams is None else ("off", "resident")
    for policy in policies:
        steps = RoutedSteps(rig, rig.experts(store, policy, num_slots), {})
        for level in levels:
            steps.build(level, most_rows=1)


def graph_bytes(rig: Rig, steps: RoutedSteps, levels: tuple[OverlapLevel, ...]) -> dict[str, int]:
    """What the graphs of all numbers of rows take from the device at each level, by the driver's own count.

    `steps` ran before, so that no kernel is loaded meanwhile; its graphs are gone afterwards.
    """
    found: dict[str, int] = {}
    for level in levels:
        steps.discard()
        before = rig.free_bytes()
        steps.build(level, warms_up=False)
        with rig.on_compute_stream():
            # A graph's own memory is taken at its first launch.
            for num_rows in range(1, rig.max_rows + 1):
                steps.launch(num_rows)
        found[level] = before - rig.free_bytes()
    return found
