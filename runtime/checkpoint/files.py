"""A model folder's files: config.json and the headers of its safetensors files. Reads no weights, imports no torch.

Refuses by name what can't be used: no folder, no weights, config that isn't JSON, a missing or truncated shard, a
header that is longer than its file or isn't JSON, entries that contradict their offsets, a Git-LFS pointer.
"""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from runtime.checkpoint.skipped_parts import skipped_files
from runtime.errors import CheckpointError

DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
"""Bytes of one element, by safetensors dtype name."""

_LFS_MAGIC = b"version https://git-lfs.github.com/spec/"
_MAX_HEADER_BYTES = 100_000_000
"""The container format's own limit."""
_DOWNLOAD_AGAIN = "download this file again"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies: bytes [begin, end) of `file`, counted from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int


@dataclass(frozen=True)
class CheckpointFiles:
    """An opened model folder. `entries` has every tensor of every weight file, by name."""

    folder: Path
    config: dict[str, Any]
    entries: dict[str, TensorEntry]
    weight_files: tuple[Path, ...]
    total_bytes: int
    """Size of all weight files."""

    @classmethod
    def open(cls, folder: Path) -> "CheckpointFiles":
        """Read config and headers. Raises CheckpointError naming the file, and the tensor where there is one."""
        try:
            return cls._open(Path(folder))
        except OSError as error:
            raise CheckpointError(f"{folder}: can't be read ({error.strerror}); check its permissions") from None

    @classmethod
    def _open(cls, folder: Path) -> "CheckpointFiles":
        if not folder.is_dir():
            raise CheckpointError(f"{folder}: there is no such model folder; give the folder that holds config.json")
        config = read_json(folder / "config.json")
        weight_map = _read_index(folder)
        weight_files = _weight_files(folder, weight_map)
        entries: dict[str, TensorEntry] = {}
        for file in weight_files:
            for entry in _read_header(file):
                if entry.name in entries:
                    other = entries[entry.name].file.name
                    raise CheckpointError(f"{file}: tensor {entry.name} is also in {other}; {_DOWNLOAD_AGAIN}")
                entries[entry.name] = entry
        _check_index(folder, weight_map, entries)
        return cls(folder, config, entries, weight_files, sum(file.stat().st_size for file in weight_files))

    def find(self, name: str) -> TensorEntry:
        """The entry of a tensor that must be there. Raises CheckpointError naming it."""
        entry = self.entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self.folder}: tensor {name} is missing; the download is incomplete, get it again")
        return entry


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a small file. Raises CheckpointError naming file and position."""
    _refuse_special_file(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: the file is missing; a model folder needs it beside its weights") from None
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read ({error.strerror}); check its permissions") from None
    _refuse_lfs_pointer(path, raw)
    try:
        value = json.loads(raw)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise CheckpointError(f"{path}: is not JSON ({error.msg} at {where}); {_DOWNLOAD_AGAIN}") from None
    except (ValueError, RecursionError):
        # Not UTF-8, a number of thousands of digits, or endless nesting.
        raise CheckpointError(f"{path}: is not JSON text; {_DOWNLOAD_AGAIN}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: is JSON but not an object; {_DOWNLOAD_AGAIN}")
    return value


def _read_index(folder: Path) -> dict[str, str]:
    """Tensor name to file name, or {} where there is no index."""
    path = folder / "model.safetensors.index.json"
    if not path.exists():
        return {}
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: has no weight_map; {_DOWNLOAD_AGAIN}")
    for name, file_name in weight_map.items():
        _refuse_unprintable(path, name)
        if not isinstance(file_name, str) or PurePath(file_name).name != file_name or not file_name.isprintable():
            raise CheckpointError(f"{path}: tensor {name} points to {file_name!r}, which is not a file of the folder")
    # A download leaves out what is not run where it lies in files of its own.
    absent = {file_name for file_name in skipped_files(weight_map) if not (folder / file_name).exists()}
    return {name: file_name for name, file_name in weight_map.items() if file_name not in absent}


def _weight_files(folder: Path, weight_map: dict[str, str]) -> tuple[Path, ...]:
    if weight_map:
        first_tensor: dict[str, str] = {}
        for name, file_name in weight_map.items():
            first_tensor.setdefault(file_name, name)
        for file_name, name in sorted(first_tensor.items()):
            if not (folder / file_name).is_file():
                raise CheckpointError(
                    f"{folder / file_name}: the shard is missing (tensor {name} is in it); download it into the folder"
                )
        return tuple(folder / file_name for file_name in sorted(first_tensor))
    single = folder / "model.safetensors"
    files = (single,) if single.is_file() else tuple(sorted(folder.glob("*.safetensors")))
    if not files:
        raise CheckpointError(f"{folder}: has no weights (*.safetensors); download them into this folder")
    return files


def _read_header(file: Path) -> list[TensorEntry]:
    _refuse_special_file(file)
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            _refuse_lfs_pointer(file, start + stream.read(64))
            if len(start) < 8:
                raise CheckpointError(f"{file}: is cut short ({size} bytes, no header); {_DOWNLOAD_AGAIN}")
            (header_bytes,) = struct.unpack("<Q", start)
            if header_bytes > min(size - 8, _MAX_HEADER_BYTES):
                raise CheckpointError(
                    f"{file}: claims a header of {header_bytes} bytes, longer than the file ({size}); {_DOWNLOAD_AGAIN}"
                )
            stream.seek(8)
            raw = stream.read(header_bytes)
    except OSError as error:
        raise CheckpointError(f"{file}: can't be read ({error.strerror}); check its permissions") from None
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file}: its header is not JSON; {_DOWNLOAD_AGAIN}")
    header.pop("__metadata__", None)
    entries = [_read_entry(file, 8 + header_bytes, size, name, value) for name, value in header.items()]
    _refuse_overlap(file, entries)
    return entries


def _read_entry(file: Path, data_start: int, file_size: int, name: str, value: Any) -> TensorEntry:
    _refuse_unprintable(file, name)
    try:
        dtype, shape, (begin, end) = value["dtype"], tuple(value["shape"]), value["data_offsets"]
        is_valid = isinstance(dtype, str) and all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        is_valid = False
    if not is_valid or begin > end:
        raise CheckpointError(f"{file}: the header entry of tensor {name} makes no sense; {_DOWNLOAD_AGAIN}")
    if data_start + end > file_size:
        missing = data_start + end - file_size
        raise CheckpointError(
            f"{file}: is truncated: tensor {name} ends {missing} bytes after the end of the file; {_DOWNLOAD_AGAIN}"
        )
    if dtype in DTYPE_BYTES and math.prod(shape) * DTYPE_BYTES[dtype] != end - begin:
        raise CheckpointError(
            f"{file}: tensor {name} has {end - begin} bytes, which is not {dtype} {list(shape)}; {_DOWNLOAD_AGAIN}"
        )
    return TensorEntry(name, dtype, shape, file, data_start + begin, data_start + end)


def _refuse_overlap(file: Path, entries: list[TensorEntry]) -> None:
    previous: TensorEntry | None = None
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if previous is not None and entry.begin < previous.end:
            raise CheckpointError(
                f"{file}: tensors {previous.name} and {entry.name} claim the same bytes; {_DOWNLOAD_AGAIN}"
            )
        previous = entry


def _refuse_unprintable(file: Path, name: str) -> None:
    """Names end up in messages, so a name must not be able to steer a terminal."""
    if not name.isprintable():
        raise CheckpointError(f"{file}: has a tensor named {name!a}; no model has such names, {_DOWNLOAD_AGAIN}")


def _refuse_special_file(path: Path) -> None:
    """Reading a pipe or a device may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise CheckpointError(f"{path}: is not an ordinary file; {_DOWNLOAD_AGAIN}")


def _refuse_lfs_pointer(path: Path, start: bytes) -> None:
    if start.startswith(_LFS_MAGIC):
        raise CheckpointError(
            f"{path}: is a Git-LFS pointer, not the file itself; run 'git lfs pull' in the folder or download the file"
        )


def _check_index(folder: Path, weight_map: dict[str, str], entries: dict[str, TensorEntry]) -> None:
    for name, file_name in weight_map.items():
        entry = entries.get(name)
        if entry is None or entry.file.name != file_name:
            raise CheckpointError(
                f"{folder / file_name}: tensor {name} is not in it, though the index says so; {_DOWNLOAD_AGAIN}"
            )
