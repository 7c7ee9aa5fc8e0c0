"""Kernels over rows take no specialisation: that is what fixes their sums."""

import importlib
import pkgutil

import pytest

from runtime.kernels import triton_ops

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
