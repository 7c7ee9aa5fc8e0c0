"""The bench of the ops runs every one of them, and goes on where one fails."""

from dataclasses import replace

import torch

from scripts.bench_ops import lines, measure_copy
from scripts.kernel_bench.op_cases import OpGeometry, op_cases
from scripts.kernel_bench.timing import Timer

TINY = OpGeometry(
    hidden=32, num_streams=2, rank=16, num_experts=16, shared=16, vocab_sizes=(64,), num_heads=4, num_kv_heads=2,
    head_dim=16, rotary_half=4, index_heads=2, index_dim=16, budget=8, contexts=(64,), plain_heads=(4, 2, 16),
    key_heads=1, value_heads=2, delta_dim=16, cycled_bytes=1, most_calls=1,
)  # fmt: skip


def test_every_op_gets_a_line_and_a_failing_one_stops_no_other() -> None:
    timer, failures = Timer(torch.device("cpu"), 1), []
    copy_bytes_s = measure_copy(timer, 1 << 20)
    assert copy_bytes_s > 0
    cases = list(op_cases(TINY, 2, timer.device))
    broken = replace(cases[0], name="broken", make_calls=lambda: [lambda: 1 // 0])
    table = list(lines(timer, iter([broken, *cases]), copy_bytes_s, lambda: failures.append(1)))
    assert table[2] == "| broken | failed | | | |"
    assert len(failures) == 1
    assert len(table) == 3 + len(cases)
    assert len({line.split("|")[1] for line in table[3:]}) == len(cases) > 30
