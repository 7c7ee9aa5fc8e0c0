"""Prefill's experts by decode's kernel: the same outputs as from matrices, whichever way a route goes."""

import pytest
import torch
from torch import Tensor

from runtime.experts import row_groups
from runtime.experts.row_groups import RowGroups
from runtime.experts.streamed import StreamedExperts
from runtime.kernels.torch_ops.experts import ExpertCompute, expert_rows
from runtime.record import RecordLayout
from tests.support.random_experts import make_experts


def streamed(experts_in: str, most_routes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, list[int]]:
    """40 tokens through a ring of 3 beside 4 slots; also how many routes each call of the kernel had."""
    experts = make_experts(experts_in, hidden=64, intermediate=32)
    slots = experts.in_slots(4)
    num_routes: list[int] = []

    def counted(layout: RecordLayout, pool: Tensor, slot_ids: Tensor, hidden: Tensor) -> Tensor:
        num_routes.append(len(slot_ids))
        return expert_rows(layout, pool, slot_ids, hidden)

    monkeypatch.setattr(row_groups, "MOST_ROUTES", most_routes)
    monkeypatch.setattr(row_groups, "_ROWS_AT_ONCE", 16)
    compute = RowGroups(experts.layout, counted, ExpertCompute(experts.layout))
    pools = [slots.pool[:, : experts.layout.record_bytes]] * experts.spec.num_layers
    run = StreamedExperts(experts.store, slots.cache, pools, [compute] * experts.spec.num_layers)
    generator = torch.Generator().manual_seed(1)
    hidden, logits = torch.randn(40, 64, generator=generator), torch.randn(40, 8, generator=generator)
    # Skewed, so that some experts have many routes and some few.
    chosen = (logits + torch.linspace(2.0, 0.0, 8)).topk(2, -1).indices
    output, _ = run.run(0, hidden, chosen)
    slots.check_integrity()
    return output, num_routes


@pytest.mark.parametrize("experts_in", ["nvfp4", "fp8", "bf16"])
def test_both_ways_agree(experts_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrices, none = streamed(experts_in, 0, monkeypatch)
    rows, all_routes = streamed(experts_in, 1000, monkeypatch)
    mixed, some = streamed(experts_in, 8, monkeypatch)
    assert none == []
    assert (sum(all_routes), max(all_routes)) == (80, 16)
    assert 0 < sum(some) < 80
    for output in (rows, mixed):
        assert (output - matrices).abs().max() <= 2e-6 * matrices.abs().max()


def test_what_the_kernel_does_not_take() -> None:
    assert RowGroups.takes(RecordLayout.build(64, 32, "nvfp4"))
    assert not RowGroups.takes(RecordLayout.build(64, 24, "nvfp4"))
    assert RowGroups.takes(RecordLayout.build(36, 7, "fp32"))
