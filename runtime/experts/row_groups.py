"""Prefill's experts on a GPU: few routes by decode's kernel, which reads the record as it lies; many as matrices.

Unpacking an expert into matrices takes a dozen launches and some 100 MB of traffic whatever the number of its routes,
and a chunk of a few hundred tokens has but a few routes per expert.
"""

import torch
from torch import Tensor

from runtime.experts.streamed import GroupCompute
from runtime.kernels.ops import Op
from runtime.record import NVFP4_GROUP, RecordLayout

MOST_ROUTES = 96
"""Of an expert: beyond it, unpacking pays."""
_ROWS_AT_ONCE = 1024
"""Bounds the memory of one launch: its inputs and outputs."""


class RowGroups:
    """Implements `GroupCompute` by `expert_rows`; by `matrices` for experts with more than `MOST_ROUTES` routes."""

    def __init__(self, layout: RecordLayout, expert_rows: Op, matrices: GroupCompute) -> None:
        self._layout, self._expert_rows, self._matrices = layout, expert_rows, matrices

    @staticmethod
    def takes(layout: RecordLayout) -> bool:
        """The kernel computes records of this layout."""
        is_narrow = layout.expert_format == "nvfp4"
        return not (is_narrow and (layout.hidden % NVFP4_GROUP or layout.intermediate % NVFP4_GROUP))

    def groups(self, pool: Tensor, slots: list[int], routes: list[Tensor], hidden: Tensor, output: Tensor) -> None:
        """As `ExpertCompute.groups`."""
        few = [i for i, expert_routes in enumerate(routes) if len(expert_routes) <= MOST_ROUTES]
        many = [i for i, expert_routes in enumerate(routes) if len(expert_routes) > MOST_ROUTES]
        if many:
            self._matrices.groups(pool, [slots[i] for i in many], [routes[i] for i in many], hidden, output)
        if few:
            self._run_rows(pool, [slots[i] for i in few], [routes[i] for i in few], hidden, output)

    def _run_rows(self, pool: Tensor, slots: list[int], routes: list[Tensor], hidden: Tensor, output: Tensor) -> None:
        num_choices = output.shape[0] // hidden.shape[0]
        slot_of_route = [
            slot for slot, expert_routes in zip(slots, routes, strict=True) for _ in range(len(expert_routes))
        ]
        all_slots = torch.tensor(slot_of_route, dtype=torch.int32, device=hidden.device).unsqueeze(1)
        # Routes of one expert stay together, so that its record is read once and then found in the cache.
        all_routes = torch.cat(routes)
        for some_routes, some_slots in zip(
            all_routes.split(_ROWS_AT_ONCE), all_slots.split(_ROWS_AT_ONCE), strict=True
        ):
            rows = hidden.index_select(0, some_routes // num_choices)
            output.index_copy_(0, some_routes, self._expert_rows(self._layout, pool, some_slots, rows).squeeze(1))
