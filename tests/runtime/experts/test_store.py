"""The host store: every byte of an expert lies in its record, filling reports and can be stopped, errors have names."""

import pytest
import torch

from runtime.checkpoint.expert_source import ExpertTensors
from runtime.errors import CheckpointError
from runtime.experts.packing import pack_record
from runtime.experts.store import PinnedStore
from runtime.record import RECORD_ALIGNMENT, RecordLayout
from tests.support.random_experts import make_experts


def test_nvfp4_record_holds_codes_scales_and_global_scales_in_order() -> None:
    experts = make_experts("nvfp4", hidden=48, intermediate=16)
    layout, tensors = experts.layout, experts.source.tensors[2, 5]
    record = experts.store.record(2, 5)
    assert record.shape == (layout.record_bytes,)
    assert layout.record_bytes % RECORD_ALIGNMENT == 0
    gate_up = torch.cat([tensors.gate.codes, tensors.up.codes]).flatten()
    assert torch.equal(record[: gate_up.numel()], gate_up)
    scales = torch.cat([tensors.gate.scales, tensors.up.scales]).flatten()
    assert torch.equal(record[layout.gate_up_scale_offset :][: scales.numel()], scales)
    assert torch.equal(record[layout.down_offset :][: tensors.down.codes.numel()], tensors.down.codes.flatten())
    stored = record[layout.global_scale_offset : layout.global_scale_offset + 12].view(torch.float32)
    expected = [m.global_scale for m in (tensors.gate, tensors.up, tensors.down)]
    assert stored.tolist() == pytest.approx(expected, rel=0, abs=0)


@pytest.mark.parametrize("fmt", ["bf16", "fp16", "fp32"])
def test_plain_record_holds_the_values(fmt: str) -> None:
    experts = make_experts(fmt, hidden=36, intermediate=7)
    tensors = experts.source.tensors[0, 1]
    values = torch.cat([tensors.gate.values, tensors.up.values]).flatten().view(torch.uint8)
    assert torch.equal(experts.store.record(0, 1)[: values.numel()], values)


def test_fill_reports_up_to_the_total_and_stops_when_told() -> None:
    experts = make_experts()
    reports: list[tuple[int, int]] = []
    store = PinnedStore.fill(experts.source, (experts.layout,) * 3, 8, lambda *report: reports.append(report))
    assert reports[0] == (0, store.num_bytes)
    assert reports[-1] == (store.num_bytes, store.num_bytes)
    assert reports == sorted(reports)

    def stop(done_bytes: int, total_bytes: int) -> None:
        if done_bytes > total_bytes // 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        PinnedStore.fill(experts.source, (experts.layout,) * 3, 8, stop)


def test_mixed_formats_and_odd_widths_are_refused() -> None:
    plain, packed = make_experts("bf16"), make_experts("nvfp4")
    tensors = packed.source.tensors[0, 0]
    mixed = ExpertTensors(tensors.gate, tensors.up, plain.source.tensors[0, 0].down)
    record = torch.empty(packed.layout.record_bytes, dtype=torch.uint8)
    with pytest.raises(CheckpointError, match="not stored as nvfp4"):
        pack_record(mixed, packed.layout, record)
    odd = RecordLayout.build(48, 17, "nvfp4")
    with pytest.raises(CheckpointError, match="even moe_intermediate_size, but it is 17"):
        PinnedStore.fill(packed.source, (odd,) * 3, 8)
