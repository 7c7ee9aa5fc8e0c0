"""What the machine can do at best, measured in the same run: memory, and copies from pinned host memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from scripts.kernel_bench.layer import ExpertMemory
from scripts.kernel_bench.timing import Timer


@dataclass(frozen=True)
class Floors:
    """Bandwidths in bytes per microsecond, and memcpy times by number of records."""

    device_copy: float
    """Read plus written."""
    host_copy: float
    """One large memcpy from pinned memory."""
    memcpy_us: dict[int, float]
    """Of so many single records, one memcpy each."""
    graph_memcpy_us: dict[int, float]
    """The same as nodes of a graph."""

    def layer_us(self, memory: ExpertMemory, num_rows: int, num_missed: int) -> float:
        """The larger of the missed bytes over the link and all routed bytes over device memory."""
        record_bytes = memory.geometry.layout.record_bytes
        routed_bytes = num_rows * memory.geometry.num_choices * record_bytes
        return max(num_missed * record_bytes / self.host_copy, routed_bytes / self.device_copy)

    def lines(self, memory: ExpertMemory) -> list[str]:
        record_bytes = memory.geometry.layout.record_bytes
        lines = [
            f"device-to-device copy, read + written: {self.device_copy / 1e3:.0f} GB/s",
            f"memcpy from pinned memory, 1 GiB: {self.host_copy / 1e3:.1f} GB/s",
        ]
        for number, us in self.memcpy_us.items():
            node_us = self.graph_memcpy_us[number]
            speed = number * record_bytes / us / 1e3
            lines.append(f"memcpy of {number} records: {us:.1f} µs ({speed:.1f} GB/s); as graph nodes {node_us:.1f} µs")
        return lines


def measure_floors(timer: Timer, memory: ExpertMemory, num_missed: Sequence[int]) -> Floors:
    """Raises what torch raises where memory runs short."""
    is_cuda = timer.device.type == "cuda"
    num_bytes = 1 << 30 if is_cuda else 1 << 20
    source = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, device=timer.device)
    target = torch.empty_like(source)
    device_us = timer.eager(lambda: target.copy_(source))
    host = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=is_cuda)
    host.random_()
    host_us = timer.eager(lambda: target.copy_(host, non_blocking=True))
    numbers = sorted({number for number in num_missed if number})
    return Floors(
        2 * num_bytes / device_us,
        num_bytes / host_us,
        {number: timer.eager(lambda n=number: _copy_records(memory, n, 8), 8) for number in numbers},
        {number: timer.in_graph([lambda n=number: _copy_records(memory, n, 8)]) / 8 for number in numbers},
    )


def _copy_records(memory: ExpertMemory, num_records: int, num_times: int) -> None:
    """Records far apart in host memory, into slots far apart, `num_times` over."""
    geometry, banks = memory.geometry, memory.banks
    for i in range(num_records * num_times):
        bank = banks[i % len(banks)]
        slot, expert = (i * 101) % geometry.num_slots, (i * 37) % geometry.num_experts
        memory.pool[slot].copy_(bank[expert], non_blocking=True)
