"""Kernels over rows take no specialisation: that is what fixes their sums. The largest of a row are found exactly."""

import importlib
import pkgutil

import pytest
import torch
import triton
import triton.language as tl

from runtime.kernels import triton_ops
from runtime.kernels.triton_ops.rows import ordered_bits, places_of_largest

PER_ROW = ("dense", "norms", "heads", "hyper_connection", "conv", "delta_rule", "ngram", "attention", "indexer")
PER_ROW_MODULES = sorted({module.name for module in pkgutil.iter_modules(triton_ops.__path__)} & {*PER_ROW, "sampler"})


@pytest.mark.parametrize("module", PER_ROW_MODULES)
def test_kernels_are_not_specialised_on_their_arguments(module: str) -> None:
    source = importlib.import_module(f"runtime.kernels.triton_ops.{module}")
    kernels = [value for name, value in vars(source).items() if name.endswith("_kernel") and name.startswith("_")]
    assert kernels
    for kernel in kernels:
        # An interpreted kernel keeps the keywords of its decorator, a compiled one has made attributes of them.
        kept = getattr(kernel, "kwargs", None) or vars(kernel)
        arguments = {name for name in kernel.arg_names if name not in kernel.fn.__annotations__}
        assert set(kept["do_not_specialize"]) == arguments, kernel
        assert set(kept["do_not_specialize_on_alignment"]) == arguments, kernel


@triton.jit
def places_kernel(values, output, k, block: tl.constexpr):
    places = tl.arange(0, block)[None, :]
    tl.store(output + places, places_of_largest(ordered_bits(tl.load(values + places)), k))


@pytest.mark.parametrize("kind", ["spread", "close", "equal", "mostly zero", "huge"])
def test_places_of_largest(kind: str, device: torch.device) -> None:
    values = {
        "spread": torch.exp(torch.randn(64) * 20),
        "close": 1 + torch.randint(0, 9, (64,)) * 2**-23,
        "equal": torch.full((64,), 0.3),
        "mostly zero": torch.relu(torch.randn(64) - 1),
        "huge": torch.where(torch.rand(64) < 0.5, torch.inf, 3e38),
    }[kind].to(device)
    values[50:] = -1.0
    for k in (1, 7, 31, 50):
        best = sorted(range(64), key=lambda index: (-values[index].item(), index))[:k]
        expected = torch.full((64,), -1, dtype=torch.int32, device=device)
        expected[sorted(best)] = torch.arange(k, dtype=torch.int32, device=device)
        result = torch.empty_like(expected)
        places_kernel[(1,)](values, result, k, block=64)
        assert torch.equal(result, expected), k
