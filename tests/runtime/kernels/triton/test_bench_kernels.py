"""The bench of the kernels runs, every step of it, at a toy geometry; a step that fails ends no other."""

import pytest
import torch

from scripts.bench_kernels import Bench, attempt
from scripts.kernel_bench.layer import Geometry


def test_every_step_prints_its_table(device: torch.device, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(Geometry(32, 16, 24, 2, 2, 20), device, num_rounds=1, num_iterations=1)
    bench.num_missed = [0, 1]
    steps = (bench.measure_floors, bench.parts, bench.ensure, bench.copy, bench.layer, bench.by_arrival)
    assert all(attempt(step) for step in steps)
    printed = capsys.readouterr().out
    for line in ("memcpy of 1 records", "| experts |", "| rule |", "| lru, 2, 4 |"):
        assert line in printed


def test_a_failing_step_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        raise RuntimeError("no such luck")

    assert not attempt(broken)
    assert "no such luck" in capsys.readouterr().out
