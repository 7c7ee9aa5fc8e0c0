"""Times every op of a decode step but the routed experts, at the flagship's geometry, beside this run's copy bandwidth.

Every figure is a median of graph replays by device events; consecutive calls use other weights and states, of more
bytes than any cache holds. An op that fails is reported and the others go on. A Markdown table.
"""

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

# The repository's own packages, wherever the script is started from.
import torch  # noqa: E402
import triton  # noqa: E402

from scripts.kernel_bench.op_cases import OpCase, OpGeometry, op_cases  # noqa: E402
from scripts.kernel_bench.timing import Timer  # noqa: E402

_COPY_BYTES = 1 << 30


def measure_copy(timer: Timer, num_bytes: int = _COPY_BYTES) -> float:
    """Bytes per second that a copy on the device reads and writes together."""
    source = torch.ones(num_bytes, dtype=torch.uint8, device=timer.device)
    target = torch.empty_like(source)
    return 2 * num_bytes / timer.in_graph([lambda: target.copy_(source)]) * 1e6


def measure(timer: Timer, case: OpCase, copy_bytes_s: float) -> str:
    """One line of the table."""
    calls = case.make_calls()
    us = timer.in_graph(calls)
    floor_us = case.num_bytes / copy_bytes_s * 1e6
    share = f"{case.num_bytes / us * 1e6 / copy_bytes_s:.2f}" if floor_us > 1.0 else ""
    return f"| {case.name} | {us:.2f} | {case.num_bytes / 1e6:.2f} | {case.num_bytes / us / 1e3:.0f} | {share} |"


def lines(timer: Timer, cases: Iterator[OpCase], copy_bytes_s: float, on_failure: Callable[[], None]) -> Iterator[str]:
    """The table, line by line; `on_failure` is called once per op that fails."""
    yield "| op | µs | MB | GB/s | share of copy |"
    yield "|---|---|---|---|---|"
    for case in cases:
        try:
            yield measure(timer, case, copy_bytes_s)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            yield f"| {case.name} | failed | | | |"
            on_failure()


def main() -> int:
    """Run all cases; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4], help="rows of a step")
    parser.add_argument("--only", default="", help="ops whose name contains this")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    timer = Timer(torch.device("cuda"), arguments.rounds)
    copy_bytes_s = measure_copy(timer)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"copy on the device: {copy_bytes_s / 1e9:.0f} GB/s, read and written together\n")
    failures: list[int] = []
    for num_rows in arguments.rows:
        print(f"### {num_rows} rows\n")
        cases = op_cases(OpGeometry(), num_rows, timer.device)
        chosen = (case for case in cases if arguments.only in case.name)
        for line in lines(timer, chosen, copy_bytes_s, lambda rows=num_rows: failures.append(rows)):
            print(line, flush=True)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
