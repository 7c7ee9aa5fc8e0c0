"""A whole decode engine over random weights of a tiny geometry, on a CPU or a GPU, with whichever ops and overlap."""

from typing import Any

import torch
from torch import Tensor

from runtime.benches.synthetic import NAMES, TINY, RandomTensors, random_store, synthetic_spec
from runtime.cache.page_pool import PagePool
from runtime.cache.state_pool import StatePool
from runtime.execute.decode_graph import DecodeSteps
from runtime.execute.decode_inputs import DecodeInputs
from runtime.execute.overlap import OverlapLevel
from runtime.execute.streams import DecodeStreams
from runtime.experts.device_routed import DeviceExperts
from runtime.experts.device_slots import DeviceSlots
from runtime.kernels.ops import Ops
from runtime.layers.decoder import Decoder
from runtime.schedule.step_plan import PlannedSegment, StepPlan
from runtime.spec import ExpertFormat

PAGES_PER_ROW = 4


class SyntheticDecode:
    """`max_rows` sequences, each in pages and a state row of its own, decoded from position 0 on."""

    def __init__(
        self,
        ops: Ops,
        device: torch.device,
        streams: DecodeStreams | None = None,
        *,
        max_rows: int = 4,
        num_layers: int = 4,
        num_slots: int = 40,
        policy: str = "rule",
        expert_format: ExpertFormat = "nvfp4",
        captures: bool = True,
        is_fp8: bool = False,
    ) -> None:
        self.spec = synthetic_spec(TINY, num_layers, expert_format)
        self._ops, self._device, self._policy, self._max_rows = ops, device, policy, max_rows
        self._store = random_store(self.spec, num_layers)
        if device.type == "cuda":
            self._store.pin()
        source: Any = RandomTensors(self.spec, torch.device("cpu"))
        dtype = torch.bfloat16
        self.decoder = Decoder.build(
            self.spec, source, NAMES, device, dtype, residual_dtype=dtype, ops=ops, is_fp8=is_fp8
        )
        self.pages = PagePool(self.spec, PAGES_PER_ROW * max_rows, device, torch.float16)
        self.states = StatePool(self.spec, max_rows, device)
        self._inputs = DecodeInputs(max_rows, PAGES_PER_ROW * 64, device)
        self._streams, self._captures = streams, captures
        self.resize(num_slots)

    def resize(self, num_slots: int) -> None:
        """Other slots, all empty; steps must be built again."""
        moe = self.spec.moe
        cache = DeviceSlots(
            self.spec.num_layers, moe.num_experts, num_slots, self._policy,
            num_choices=moe.num_experts_per_token, max_rows=self._max_rows, num_ring_slots=1, device=self._device,
        )  # fmt: skip
        self.experts = DeviceExperts(self._store, cache, self._ops, self._device, moe.num_experts_per_token)
        self.steps = DecodeSteps(
            self.decoder, self.pages, self.states, self.experts, self._inputs, self._streams, captures=self._captures
        )

    def run(self, level: OverlapLevel, num_rows: int, num_steps: int, builds: bool = True) -> list[Tensor]:
        """Everything that must not differ: logits of every step, slot map, slots, pages, states."""
        if builds:
            self.steps.build(level, warms_up=self._device.type == "cuda")
        for row in range(self._max_rows):
            self.states.reset(row)
        generator = torch.Generator().manual_seed(7)
        for pool in (self.pages.keys, self.pages.values, self.pages.index_keys):
            assert pool is not None
            # Not zeros: what is read of the wrong place must show.
            pool.copy_(torch.randn(pool.shape, generator=generator))
        self.experts.pool.zero_()
        # Waits for what was zeroed above, too.
        self.experts.cache.reset()
        # A row's tokens are the same whatever the number of rows.
        drawn = torch.randint(self.spec.vocab_size, (num_steps, self._max_rows), generator=generator)
        tokens = drawn[:, :num_rows].tolist()
        logits = [self.steps.run(self._plan(step, row_tokens)).clone() for step, row_tokens in enumerate(tokens)]
        self.experts.check_integrity()
        found = [*logits, self.experts.cache.state.slot_of, self.experts.cache.state.owner, self.experts.pool]
        found += [self.pages.keys, self.pages.values, self.states.recurrent, self.states.conv]
        return [tensor.cpu().clone() for tensor in found]

    def _plan(self, position: int, tokens: list[int]) -> StepPlan:
        """Rows start at positions apart, so that blocks and pages end at different steps."""
        segments = tuple(
            PlannedSegment(
                str(row), (token,), position + 62 * row % 64,
                tuple(range(PAGES_PER_ROW * row, PAGES_PER_ROW * (row + 1))), row, (0,),
            )
            for row, token in enumerate(tokens)
        )  # fmt: skip
        return StepPlan(segments, (), is_decode=True)
