"""Writes planned tensors into safetensors shards, streaming: no more than one pattern per dtype is held."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy

from scripts.checkpoints.plan import PlannedTensor

SHARD_BYTES = 4 << 30
_PATTERN_BYTES = 8 << 20


class RandomBytes:
    """Plausible weights of every dtype: finite, small, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._generator = numpy.random.default_rng(seed)
        self._patterns: dict[str, bytes] = {}

    def write(self, tensor: PlannedTensor, stream: BinaryIO) -> None:
        """All bytes of one tensor, starting anywhere in its dtype's pattern."""
        if tensor.values:
            stream.write(numpy.array(tensor.values, dtype="<i8").tobytes())
            return
        pattern = self._pattern(tensor)
        remaining = tensor.num_bytes
        start = int(self._generator.integers(0, len(pattern) // 8)) * 4
        while remaining > 0:
            piece = pattern[start : start + remaining]
            stream.write(piece)
            remaining -= len(piece)
            start = 0

    def _pattern(self, tensor: PlannedTensor) -> bytes:
        is_scale = "scale" in tensor.name.rsplit(".", 1)[1]
        key = f"{tensor.dtype} scale" if is_scale else tensor.dtype
        if key not in self._patterns:
            self._patterns[key] = self._make(tensor.dtype, is_scale)
        return self._patterns[key]

    def _make(self, dtype: str, is_scale: bool) -> bytes:
        count = _PATTERN_BYTES
        if dtype == "U8":
            return self._generator.bytes(count)
        if dtype == "F8_E4M3":
            # Scales about 1 to 4; values of either sign below 2, where NaN is far.
            magnitudes = self._generator.integers(0x38, 0x48, count, dtype=numpy.uint8)
            values = self._generator.integers(0, 0x40, count, dtype=numpy.uint8)
            signs = self._generator.integers(0, 2, count, dtype=numpy.uint8) << 7
            return bytes((magnitudes if is_scale else values | signs).tobytes())
        numbers = self._generator.normal(0, 0.02, count // 4).astype("<f4")
        if is_scale:
            numbers = numpy.abs(numbers) + numpy.float32(0.005)
        return bytes(numbers.tobytes() if dtype == "F32" else (numbers.view("<u4") >> 16).astype("<u2").tobytes())


def write_shards(
    tensors: Iterator[PlannedTensor], folder: Path, seed: int, progress: Callable[[int, int], None]
) -> None:
    """Shards of about 4 GiB and their index; `progress` hears bytes written and bytes in all."""
    shards: list[list[PlannedTensor]] = [[]]
    shard_bytes = 0
    for tensor in tensors:
        if shards[-1] and shard_bytes + tensor.num_bytes > SHARD_BYTES:
            shards.append([])
            shard_bytes = 0
        shards[-1].append(tensor)
        shard_bytes += tensor.num_bytes
    total = sum(tensor.num_bytes for shard in shards for tensor in shard)
    done, random_bytes, weight_map = 0, RandomBytes(seed), {}
    for number, shard in enumerate(shards, 1):
        file = folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        with file.open("wb") as stream:
            stream.write(_header(shard))
            for tensor in shard:
                random_bytes.write(tensor, stream)
                weight_map[tensor.name] = file.name
                done += tensor.num_bytes
                progress(done, total)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _header(shard: list[PlannedTensor]) -> bytes:
    entries, begin = {}, 0
    for tensor in shard:
        offsets = [begin, begin + tensor.num_bytes]
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        begin = offsets[1]
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header
