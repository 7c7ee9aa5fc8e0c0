"""Times the cuts of dense products and of the hyper-connection: which tiling is fastest for which shape, on this card.

Run as a module: `python -m scripts.kernel_bench.tiling_sweep`. Kernels are compiled by many processes first, into
Triton's cache; then one process times them. The best few of each shape, as Markdown.
"""

import argparse
import itertools
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.jit import JITFunction

from runtime.kernels.triton_ops import dense, hyper_connection, indexer
from runtime.kernels.triton_ops.dense import DenseTiling
from runtime.kernels.triton_ops.hyper_connection import MixTiling
from runtime.kernels.triton_ops.workspace import NUM_COUNTERS
from scripts.kernel_bench.op_cases import EPS, OpGeometry
from scripts.kernel_bench.timing import Timer

_CYCLED_BYTES, _MOST_CALLS = 256 << 20, 24
_SHOWN = 4
_CUTS = (
    (16, 512, 2, 4), (16, 512, 4, 4), (32, 256, 4, 6), (32, 512, 4, 3), (32, 512, 4, 4), (64, 128, 4, 5),
    (64, 256, 4, 3), (64, 256, 8, 4), (128, 128, 8, 4),
)  # fmt: skip
"""Outputs, bytes of each in one step, warps, stages."""
Shape = tuple[str, int, int]
SelectCut = tuple[int, int]
"""Blocks of a group, warps."""
Job = tuple[str, Any, DenseTiling | MixTiling | SelectCut]


def dense_tilings(num_outputs: int, width: int, item_bytes: int) -> Iterator[DenseTiling]:
    """Tiles of 8 to 16 KiB, and so many blocks that a large card has two to eight for each multiprocessor."""
    for block_n, step_bytes, num_warps, num_stages in _CUTS:
        block_k = step_bytes // item_bytes
        if width % block_k:
            continue
        num_tiles, num_steps = triton.cdiv(num_outputs, block_n), width // block_k
        splits = [number for number in (1, 2, 4, 8, 16) if number <= num_steps]
        wanted = [number for number in splits if 250 <= num_tiles * number <= 1100] or splits[-1:]
        for num_splits in wanted[:2] if num_tiles < 250 else [1]:
            if num_splits == 1 or num_tiles <= NUM_COUNTERS:
                yield DenseTiling(block_n, block_k, num_splits, num_warps, num_stages)


def mix_tilings() -> Iterator[MixTiling]:
    """The two launches apart from each other: each one's cuts with the other's as they are."""
    g = OpGeometry()
    usual = MixTiling.of(g.num_streams, g.hidden, g.rank, torch.bfloat16)
    yield usual
    for down_n, (down_k, warps) in itertools.product((4, 8, 16), ((256, 2), (512, 4))):
        yield replace(usual, down_n=down_n, down_k=down_k, down_warps=warps)
    for mix_n, warps in itertools.product((4, 8, 16), (1, 2, 4, 8)):
        yield replace(usual, mix_n=mix_n, mix_warps=warps)


def compile_jobs(jobs: list[Job]) -> int:
    """Compile without a launch; returns how many."""
    launch = JITFunction.run
    JITFunction.run = lambda kernel, *args, grid, warmup, **kwargs: launch(
        kernel, *args, grid=grid, warmup=True, **kwargs
    )
    for kind, shape, tiling in jobs:
        device = torch.device("cuda")
        try:
            if kind == "mix":
                _mix_calls(device, 1)(tiling)[0]()
            elif kind == "select":
                _select_calls(device, shape, 1)(tiling)[0]()
            else:
                num_outputs, width = shape
                weight = torch.empty(width, dtype=_dtype(kind), device=device).expand(num_outputs, width)
                scale = torch.empty(num_outputs, device=device) if kind == "uint8" else None
                dense.linear(torch.empty(1, width, device=device), weight, scale, tiling=tiling)
        except Exception as error:
            print(kind, shape, tiling, type(error).__name__, error, file=sys.stderr)
    return len(jobs)


def _dtype(kind: str) -> torch.dtype:
    return torch.uint8 if kind == "uint8" else torch.bfloat16


def _weight(shape: tuple[int, ...], kind: str, device: torch.device) -> Tensor:
    if kind == "uint8":
        return torch.randint(0, 127, shape, dtype=torch.uint8, device=device)
    return torch.randn(shape, device=device, dtype=torch.bfloat16)


def _dense_calls(kind: str, shape: tuple[int, int], device: torch.device) -> Callable[[DenseTiling], list[Any]]:
    """Calls over so many weights that none is found in a cache."""
    num_outputs, width = shape
    scale = torch.rand(num_outputs, device=device) if kind == "uint8" else None
    x = torch.randn(1, width, device=device)
    num_calls = max(3, min(_MOST_CALLS, _CYCLED_BYTES // (num_outputs * width)))
    weights = [_weight(shape, kind, device) for _ in range(num_calls)]
    return lambda tiling: [partial(dense.linear, x, weight, scale, tiling=tiling) for weight in weights]


def _mix_calls(device: torch.device, num_calls: int = 12) -> Callable[[MixTiling], list[Any]]:
    g = OpGeometry()

    def inputs() -> tuple[Any, ...]:
        down, up = (
            _weight(shape, "bf16", device) for shape in ((g.rank + g.num_streams, g.residual), (g.residual, g.rank))
        )
        scale, residual = torch.rand(g.num_streams, g.hidden, device=device), torch.randn(1, g.residual, device=device)
        output, inject = torch.randn(1, g.hidden, device=device), torch.rand(1, g.num_streams, device=device)
        return residual, output, inject, scale, down / g.residual, up, g.num_streams, EPS

    every = [inputs() for _ in range(num_calls)]
    return lambda tiling: [partial(hyper_connection.inject_and_mix, *own, tiling) for own in every]


def _table(
    timer: Timer, name: str, candidates: list[Any], calls_of: Callable[[Any], list[Any]], num_bytes: int
) -> None:
    times = []
    for tiling in candidates:
        try:
            times.append((timer.in_graph(calls_of(tiling)), tiling))
        except Exception as error:
            print(f"{name}: {tiling} failed: {type(error).__name__} {str(error)[:100]}")
    usual, best = times[0][0], sorted(times[1:], key=lambda item: item[0])[:_SHOWN]
    print(f"{name}: now {usual:.2f} µs ({num_bytes / usual / 1e3:.0f} GB/s)")
    for us, tiling in best:
        print(f"    {us:.2f} µs ({num_bytes / us / 1e3:.0f} GB/s) {tiling}", flush=True)


def _select_calls(device: torch.device, context: int, num_calls: int = 12) -> Callable[[SelectCut], list[Any]]:
    g, pages = OpGeometry(), context // 64
    table = torch.randperm(pages, device=device).view(1, pages)
    position = torch.tensor([context - 1], device=device)
    keys = [torch.randn(pages, 16, g.index_dim, device=device).half() for _ in range(num_calls)]
    query = torch.randn(1, g.index_heads, g.index_dim, device=device)

    def call(cut: SelectCut, key: Tensor) -> object:
        indexer._GROUP_BLOCKS, indexer._SELECT_WARPS = cut
        return indexer.select_rows(query, key, table, position, g.budget, g.block_tokens)

    return lambda cut: [partial(call, cut, key) for key in keys]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=["bf16", "uint8", "mix", "select"])
    parser.add_argument("--only", nargs="+", default=[""], help="products whose name contains one of these")
    parser.add_argument("--processes", type=int, default=24)
    arguments = parser.parse_args()
    shapes = {
        name: shape for name, shape in OpGeometry().products.items() if any(part in name for part in arguments.only)
    }
    cases: dict[tuple[str, str, Any], list[Any]] = {}
    for kind in arguments.kinds:
        for name, shape in shapes.items() if kind in ("bf16", "uint8") else ():
            usual = DenseTiling.of(*shape, _dtype(kind))
            cases[kind, name, shape] = [usual, *dense_tilings(*shape, 1 if kind == "uint8" else 2)]
    if "mix" in arguments.kinds:
        cases["mix", "mix", None] = list(mix_tilings())
    if "select" in arguments.kinds:
        for context in (4_096, 131_072):
            cases["select", f"select_rows {context}", context] = [(8, 16), (4, 16), (8, 8), (16, 16)]
    jobs: list[Job] = [(kind, shape, tiling) for (kind, _, shape), tilings in cases.items() for tiling in tilings]
    number = arguments.processes
    with ProcessPoolExecutor(number, multiprocessing.get_context("spawn")) as processes:
        print(f"{sum(processes.map(compile_jobs, [jobs[i::number] for i in range(number)]))} compiled", flush=True)
    timer = Timer(torch.device("cuda"), 5)
    for (kind, name, shape), tilings in cases.items():
        if kind == "mix":
            _table(timer, "inject_and_mix", tilings, _mix_calls(timer.device), 13_300_000)
        elif kind == "select":
            _table(timer, name, tilings, _select_calls(timer.device, shape), shape // 4 * 2 * 128)
        else:
            num_bytes = shape[0] * shape[1] * (1 if kind == "uint8" else 2)
            _table(timer, f"{name}, {kind}", tilings, _dense_calls(kind, shape, timer.device), num_bytes)


if __name__ == "__main__":
    main()
