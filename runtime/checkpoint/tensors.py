"""Tensors of a checkpoint as zero-copy views of its mapped files. Owns the maps; converts nothing."""

import ctypes
import mmap
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import torch

from runtime.checkpoint.files import CheckpointFiles, TensorEntry
from runtime.checkpoint.page_reader import PageReader, PendingPages
from runtime.errors import CheckpointError

TORCH_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}

_PIECE_BYTES = 4 << 20
_PIECES_AHEAD = 8
"""Of a tensor that is copied, what is read ahead: the disk never waits."""
_PIECES_HELD = 32
"""Of a large tensor's file pages, what the process holds at most beside the copy."""


class TensorSource:
    """Reads tensors by name. Views stay valid as long as someone holds them; nobody may write to them."""

    def __init__(self, files: CheckpointFiles) -> None:
        self.files = files
        self._pages = PageReader()
        self._maps: dict[Path, mmap.mmap] = {}

    def has(self, name: str) -> bool:
        """Whether the checkpoint has this tensor."""
        return name in self.files.entries

    def get(self, name: str) -> torch.Tensor:
        """A view of the mapped file, in the stored dtype and shape. Raises CheckpointError naming the tensor."""
        entry = self.files.find(name)
        dtype = TORCH_DTYPES.get(entry.dtype)
        if dtype is None:
            raise CheckpointError(f"{entry.file}: tensor {name} has dtype {entry.dtype}, which this version can't read")
        if entry.begin == entry.end:
            return torch.empty(entry.shape, dtype=dtype)
        flat = torch.frombuffer(self._map(entry), dtype=torch.uint8, count=entry.end - entry.begin, offset=entry.begin)
        if entry.begin % dtype.itemsize:
            # The container pads its header to 8 bytes; a writer that did not leaves tensors no dtype can view in place.
            flat = flat.clone()
        return flat.view(dtype).view(entry.shape)

    def announce(self, entry: TensorEntry, begin: int, end: int) -> PendingPages:
        """Begin to read bytes [begin, end) of the entry's file. Waits for nothing."""
        mapped = self._map(entry)
        return self._pages.read(_address_of(mapped) + begin, end - begin, mapped)

    def pieces(
        self, entry: TensorEntry, stored: torch.Tensor, target: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """What `get` gave for an entry, piece by piece with the piece of `target` (as many elements) that it belongs
        to, flat, while the pieces that follow are read. Pages are given back from time to time.
        """
        num_values = max(1, _PIECE_BYTES // stored.itemsize)
        sources, targets = (tensor.reshape(-1).split(num_values) for tensor in (stored, target))
        piece_bytes = num_values * stored.itemsize
        reads: deque[PendingPages] = deque()
        for number in range(-_PIECES_AHEAD, len(sources)):
            if number + _PIECES_AHEAD < len(sources):
                begin = entry.begin + (number + _PIECES_AHEAD) * piece_bytes
                reads.append(self.announce(entry, begin, min(entry.end, begin + piece_bytes)))
                if target.device.type == "cpu":
                    self._pages.make(targets[number + _PIECES_AHEAD])
            if number < 0:
                continue
            reads.popleft().result()
            yield sources[number], targets[number]
            if number % _PIECES_HELD == _PIECES_HELD - 1:
                self.release_pages()

    def release_pages(self) -> None:
        """Give the memory of everything read so far back to the system; views stay valid and are read again if used."""
        for mapped in self._maps.values():
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)

    def _map(self, entry: TensorEntry) -> mmap.mmap:
        mapped = self._maps.get(entry.file)
        if mapped is None:
            with entry.file.open("rb") as stream:
                # A private map: torch wants writable memory, and a stray write must never reach the file.
                mapped = self._maps[entry.file] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
        return mapped


def _address_of(mapped: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))
