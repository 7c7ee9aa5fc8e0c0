"""Counts how often each byte of mapped checkpoint files is fetched by what torch computes from it.

A byte is fetched when an operation reads it for the first time, or for the first time since its page was given back:
looking twice at a page that is there fetches nothing.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runtime.checkpoint.files import CheckpointFiles, TensorEntry
from runtime.checkpoint.tensors import TensorSource


class ByteCounts(TorchDispatchMode):
    """`counts[file][i]`: how often byte i was fetched. Sees every operation, not only what was asked for by name."""

    def __init__(self, files: CheckpointFiles) -> None:
        super().__init__()
        self.counts = {file: numpy.zeros(file.stat().st_size, numpy.uint8) for file in files.weight_files}
        self._is_present = {file: numpy.zeros(file.stat().st_size, bool) for file in files.weight_files}
        self._addresses: dict[Path, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self:
            # In inference mode an operation made of others arrives whole, and it may be a view or a copy.
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        if not func.is_view:
            for tensor in tree_leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor) and tensor.numel():
                    self._fetch_tensor(tensor)
        return func(*args, **kwargs)

    def add_map(self, file: Path, address: int) -> None:
        """`file` begins at `address` in memory."""
        assert self._addresses.setdefault(file, address) == address

    def fetch(self, file: Path, begin: int, end: int) -> None:
        """Bytes [begin, end) of `file` are read."""
        present = self._is_present[file][begin:end]
        self.counts[file][begin:end] += ~present
        present[:] = True

    def give_back(self) -> None:
        """No page is there any more."""
        for present in self._is_present.values():
            present[:] = False

    def _fetch_tensor(self, tensor: torch.Tensor) -> None:
        begin = tensor.data_ptr()
        num_elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        for file, address in self._addresses.items():
            if address <= begin < address + len(self.counts[file]):
                self.fetch(file, begin - address, begin - address + num_elements * tensor.element_size())


@contextmanager
def counted_bytes(files: CheckpointFiles) -> Iterator[ByteCounts]:
    """Counts while a model is loaded from `files` in this thread."""
    counts = ByteCounts(files)
    get, map_file, release_pages = TensorSource.get, TensorSource._map, TensorSource.release_pages

    def counted_get(self: TensorSource, name: str) -> torch.Tensor:
        entry = self.files.find(name)
        if entry.dtype == "I64":
            # Hash constants become Python numbers, which is no operation of torch's.
            counts.fetch(entry.file, entry.begin, entry.end)
        return get(self, name)

    def counted_map(self: TensorSource, entry: TensorEntry) -> mmap.mmap:
        mapped = map_file(self, entry)
        counts.add_map(entry.file, numpy.frombuffer(mapped, numpy.uint8).ctypes.data)
        return mapped

    def counted_release(self: TensorSource) -> None:
        counts.give_back()
        release_pages(self)

    with pytest.MonkeyPatch.context() as patch, counts:
        patch.setattr(TensorSource, "get", counted_get)
        patch.setattr(TensorSource, "_map", counted_map)
        patch.setattr(TensorSource, "release_pages", counted_release)
        yield counts
