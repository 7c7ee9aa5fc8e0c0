"""What a model folder must hold: every file with its size and hash, at one commit of one repository."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from runtime.downloads.file_names import is_repo_id, refuse_unsafe_name
from runtime.errors import DownloadError

MANIFEST_NAME = "hotslot-download.json"
_VERSION = 1


class Hash(Protocol):
    """The part of hashlib's objects that is used."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class RemoteFile:
    """One file. Of large files the Hub knows the sha256; of the others, git's hash of the blob."""

    name: str
    num_bytes: int
    sha256: str | None
    git_sha1: str

    def new_hash(self) -> Hash:
        """Fed with all bytes of the file, its digest is `expected_digest`."""
        if self.sha256 is not None:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.num_bytes, usedforsecurity=False)

    @property
    def expected_digest(self) -> str:
        return self.sha256 or self.git_sha1


@dataclass(frozen=True)
class Manifest:
    """`revision` is what was asked for, `commit` what it meant then. `skipped` files are not needed."""

    repo_id: str
    revision: str
    commit: str
    licence: str
    files: tuple[RemoteFile, ...]
    skipped: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    def check_integrity(self) -> None:
        """Raises DownloadError where a name could leave the folder or a size or hash makes no sense."""
        if not is_repo_id(self.repo_id):
            raise DownloadError(f"{self.repo_id[:80]!a} is not the name of a repository (owner/name)")
        for file in self.files:
            refuse_unsafe_name(self.repo_id, file.name)
            digest_chars = 40 if file.sha256 is None else 64
            if file.num_bytes < 0 or len(file.expected_digest) != digest_chars:
                raise DownloadError(f"{self.repo_id}: the size or hash of {file.name} makes no sense; pull again")

    def write(self, folder: Path) -> None:
        """Beside the files, whole or not at all."""
        write_atomically(folder / MANIFEST_NAME, json.dumps({"version": _VERSION, **asdict(self)}).encode())

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """The manifest of a folder, None where there is none. Raises DownloadError if it can't be used."""
        path = folder / MANIFEST_NAME
        try:
            raw = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DownloadError(f"{path}: can't be read ({error.strerror}); check its permissions") from None
        try:
            manifest = cls._parse(json.loads(raw))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise DownloadError(f"{path}: is damaged; remove the model (hotslot models rm) and pull it again") from None
        manifest.check_integrity()
        return manifest

    @classmethod
    def _parse(cls, value: Any) -> "Manifest":
        if value.pop("version") != _VERSION:
            raise ValueError
        files = tuple(RemoteFile(**file) for file in value.pop("files"))
        for file in files:
            if type(file.num_bytes) is not int or not all(
                isinstance(text, str) for text in (file.name, file.expected_digest)
            ):
                raise ValueError
        return cls(files=files, skipped=tuple(value.pop("skipped")), **value)


def write_atomically(path: Path, data: bytes) -> None:
    """The file has its old content or the new, whatever happens; it is on the disk on return."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(new, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A rename is on the disk once its folder is; systems that can't open folders see to that themselves."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
