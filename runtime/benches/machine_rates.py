"""Measures this machine's rates for a prediction of decode's speed: `python -m runtime.benches.machine_rates QUESTION`.

QUESTION is a `RatesQuestion` as JSON; the answer is one JSON object. On a CPU the times are those that the process
had the processor, so that a busy machine is judged by what it does when it is quiet.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import torch

from runtime.benches.measures import time_runs
from runtime.kernels.torch_ops.experts import ExpertCompute
from runtime.memory.rates import MachineRates, RatesQuestion, card_rates
from runtime.record import RecordLayout
from runtime.spec import ExpertFormat

_MATRIX_BYTES = 64 << 20
"""More than a cache holds."""
_POOL_BYTES = 16 << 20
_COPY_BYTES, _READ_BYTES = 256 << 20, 512 << 20
_NUM_SMALL_OPS = 11
_ROUNDS = 7


def measure(question: RatesQuestion) -> MachineRates:
    """Takes a second, on a card a little more."""
    origin = f"measured here on {time.strftime('%Y-%m-%d')}"
    if question.device == "cpu":
        return _on_cpu(question, origin)
    return _on_card(torch.device("cuda"), origin)


def _on_card(device: torch.device, origin: str) -> MachineRates:
    """Of its memory and of the way to it; takes 768 MiB of it for a moment."""
    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(source, device=device)
    numbers = torch.ones(_READ_BYTES // 4, device=device)
    copies = [time_runs(lambda: target.copy_(source, non_blocking=True), 1, device) for _ in range(_ROUNDS)]
    reads = [time_runs(lambda: numbers.sum(), 1, device) for _ in range(_ROUNDS)]
    copy_s, read_s = (statistics.median(times[2:]) for times in (copies, reads))
    return card_rates(numbers.nbytes / read_s, source.nbytes / copy_s, origin, begins_early(device))


def begins_early(device: torch.device) -> bool:
    """Whether decode's launches on this card begin while the one before still runs."""
    return torch.cuda.get_device_capability(device) >= (9, 0)


@torch.inference_mode()
def _on_cpu(question: RatesQuestion, origin: str) -> MachineRates:
    torch.set_num_threads(question.num_threads)
    clock = time.process_time if question.num_threads == 1 else time.perf_counter
    layout = RecordLayout.build(question.hidden_size, question.intermediate, cast(ExpertFormat, question.expert_format))
    hidden = torch.randn(1, question.hidden_size)
    matrix = torch.randn(max(1, _MATRIX_BYTES // (4 * question.hidden_size)), question.hidden_size)
    num_records = max(2 * question.num_choices, _POOL_BYTES // layout.record_bytes)
    pool = torch.randint(100, (num_records, layout.record_bytes), dtype=torch.uint8)
    routes = torch.arange(num_records)[: num_records // question.num_choices * question.num_choices]
    calls = routes.view(-1, 1, question.num_choices)[:64]
    compute = ExpertCompute(layout)

    def run_experts() -> None:
        for slots in calls:
            compute.decode(pool, slots, hidden)

    def copy_records() -> None:
        for record in range(1, num_records):
            pool[record - 1].copy_(pool[record])

    arms: dict[str, Callable[[], object]] = {
        "dense": lambda: torch.mv(matrix, hidden[0]),
        "experts": run_experts,
        "copy": copy_records,
        "small": lambda: [_small_ops(hidden) for _ in range(50)],
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(_ROUNDS):
        for name, run in arms.items():
            started_s = clock()
            run()
            times[name].append(clock() - started_s)
    # The first round takes pages and caches in.
    seconds = {name: statistics.median(values[1:]) for name, values in times.items()}
    return MachineRates(
        dense_bytes_s=matrix.nbytes / seconds["dense"],
        expert_bytes_s=calls.numel() * layout.record_bytes / seconds["experts"],
        copy_bytes_s=(num_records - 1) * layout.record_bytes / seconds["copy"],
        unit_s=seconds["small"] / (50 * _NUM_SMALL_OPS),
        origin=origin,
    )


def _small_ops(hidden: torch.Tensor) -> torch.Tensor:
    """As a decoder's own small work: short, elementwise, reshaping."""
    values = hidden * hidden
    values = values + hidden
    scale = torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + 1e-6)
    values = torch.sigmoid(values * scale)
    return values.view(1, 2, -1).transpose(1, 2).contiguous().sum()


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    print(json.dumps(asdict(measure(RatesQuestion(**asked)))))


if __name__ == "__main__":
    main()
