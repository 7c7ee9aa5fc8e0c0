"""The resident set of a model between two starts: which experts had slots, dearest first, and what the policy knew.

One small file per model. It only saves time, so a file that is not whole, of another model or of another version is no
error: it is ignored, and the log says so once. Imports no torch.
"""

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

FORMAT = "hotslot-residents-1"
FOLDER = "residents"
MOST_BYTES = 64 << 20
"""No model's file is longer."""
_OWNERS = "owners"
_logger = logging.getLogger("hotslot.engine")

History = dict[str, NDArray[np.int64]]
"""What a policy knows of experts, by the names of its own fields."""


@dataclass(frozen=True)
class ResidentSet:
    """What one engine leaves to the next. An owner is layer * num_experts + expert."""

    policy: str
    owners: NDArray[np.int64]
    """Dearest first: those that had slots, then others that were used."""
    history: History
    num_slots: int
    hit_rate: float | None
    """Over the last tokens that were decoded."""


class _UnusableError(Exception):
    """Says what is wrong with a file."""


class ResidentFile:
    """The file of one model: `fingerprint` names it, and its experts bound what may stand in it."""

    @classmethod
    def of(cls, cache_dir: Path, fingerprint: str, num_layers: int, num_experts: int) -> "ResidentFile":
        """Where it lies in the folder for what can be made again."""
        return cls(cache_dir / FOLDER, fingerprint, num_layers, num_experts)

    def __init__(self, folder: Path, fingerprint: str, num_layers: int, num_experts: int) -> None:
        self.path = folder / f"{fingerprint}.residents"
        self._fingerprint = fingerprint
        self._num_layers, self._num_experts = num_layers, num_experts

    def read(self) -> ResidentSet | None:
        """What was saved last, or None where nothing usable was."""
        try:
            return self._parse(self._content())
        except FileNotFoundError:
            return None
        except OSError as error:
            problem = f"it can't be read ({error.strerror})"
        except _UnusableError as error:
            problem = str(error)
        _logger.warning("%s is ignored, the slots start empty: %s", self.path, problem)
        return None

    def peek(self) -> ResidentSet | None:
        """The same, without a word in the log: for those who only show what is known."""
        with suppress(_UnusableError, OSError):
            return self._parse(self._content())
        return None

    def write(self, residents: ResidentSet) -> None:
        """Replace the file in one rename. Raises OSError where it can't be written."""
        tensors = {_OWNERS: residents.owners.astype(np.int64), **residents.history}
        about = {
            "format": FORMAT,
            "model": self._fingerprint,
            "policy": residents.policy,
            "slots": str(residents.num_slots),
            "hit_rate": "" if residents.hit_rate is None else repr(residents.hit_rate),
            "digest": _digest(tensors),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        # Not synced to the disk: what a power cut leaves half written fails the digest.
        new.write_bytes(save(tensors, about))
        os.replace(new, self.path)

    def _content(self) -> bytes:
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
            raise _UnusableError("it is no ordinary file")
        with self.path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise _UnusableError("it is too long")
        return content

    def _parse(self, content: bytes) -> ResidentSet:
        about, tensors = _take_apart(content)
        if about.get("format") != FORMAT:
            raise _UnusableError("another version of Hotslot wrote it")
        if about.get("model") != self._fingerprint:
            raise _UnusableError("it belongs to another model")
        if about.get("digest") != _digest(tensors):
            raise _UnusableError("it is damaged")
        owners = tensors.pop(_OWNERS, np.empty(0, np.int64))
        num_owners = self._num_layers * self._num_experts
        if owners.ndim != 1 or len(np.unique(owners)) != len(owners) or not _are_below(owners, num_owners):
            raise _UnusableError("it names experts that do not exist")
        if any(values.shape not in ((1,), (num_owners,)) for values in tensors.values()):
            raise _UnusableError("it belongs to another model")
        try:
            hit_rate = float(about["hit_rate"]) if about["hit_rate"] else None
            return ResidentSet(about["policy"], owners, tensors, int(about["slots"]), hit_rate)
        except (KeyError, ValueError):
            raise _UnusableError("it is damaged") from None


def _take_apart(content: bytes) -> tuple[dict[str, str], History]:
    """The text and the numbers of a safetensors file that holds int64 alone."""
    try:
        entries = deserialize(content)
        about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        tensors = {
            name: np.frombuffer(entry["data"], np.int64).reshape(entry["shape"]).copy() for name, entry in entries
        }
    except (SafetensorError, ValueError, KeyError) as error:
        raise _UnusableError(f"it is damaged ({type(error).__name__})") from None
    return about, tensors


def _digest(tensors: History) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(f"{name}\0{tensors[name].shape}\0".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def _are_below(values: NDArray[np.int64], end: int) -> bool:
    return not len(values) or bool(values.min() >= 0 and values.max() < end)
