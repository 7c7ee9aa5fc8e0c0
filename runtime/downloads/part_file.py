"""An unfinished file on the disk: bytes are appended and hashed, and it gets its name only once the hash is right."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from runtime.downloads.manifest import RemoteFile, sync_folder, write_atomically
from runtime.errors import DownloadError

PART_SUFFIX, ETAG_SUFFIX = ".part", ".etag"
_READ_BYTES = 1 << 20
_SYNC_BYTES = 64 << 20
"""Written bytes are pushed to the disk this often, so that the end has little left to wait for."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class NoRoomError(Exception):
    """The disk takes no more."""


def part_bytes(folder: Path, file: RemoteFile) -> int:
    """What is here of an unfinished file. More than the whole is no part of it."""
    try:
        size = (folder / (file.name + PART_SUFFIX)).lstat().st_size
    except OSError:
        return 0
    return size if size <= file.num_bytes else 0


class PartFile:
    """Owns `<name>.part` and the ETag its bytes came with. Used by one thread."""

    def __init__(self, folder: Path, file: RemoteFile, check: Callable[[], None]) -> None:
        """Opens what is there and hashes it again: only bytes that were read back count. `check` may raise."""
        self._folder, self._file = folder, file
        self._path = folder / (file.name + PART_SUFFIX)
        self._etag_path = folder / (file.name + ETAG_SUFFIX)
        self._descriptor = self._open()
        self._hash = file.new_hash()
        self.num_bytes = 0
        self._num_unsynced = 0
        try:
            self._read_back(check)
        except BaseException:
            self.close()
            raise

    @property
    def etag(self) -> str | None:
        try:
            return self._etag_path.read_text(encoding="latin-1") or None
        except OSError:
            return None

    def remember_etag(self, etag: str | None) -> None:
        """Of the answer that the bytes from 0 on come from."""
        if etag == self.etag:
            return
        try:
            write_atomically(self._etag_path, (etag or "").encode("latin-1", "replace"))
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoRoomError from None
            raise self._unwritable(error) from None

    def append(self, data: bytes) -> None:
        """Write and hash. Raises NoRoomError when the disk is full; what it took is kept."""
        view = memoryview(data)
        while view:
            try:
                num_written = os.write(self._descriptor, view)
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise NoRoomError from None
                raise self._unwritable(error) from None
            self._hash.update(view[:num_written])
            self.num_bytes += num_written
            self._num_unsynced += num_written
            view = view[num_written:]
        if self._num_unsynced >= _SYNC_BYTES:
            self._sync()

    def restart(self) -> None:
        """Forget everything."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._hash, self.num_bytes = self._file.new_hash(), 0

    def finish(self) -> bool:
        """Give a complete file its name. False: all bytes are there but the hash is wrong."""
        self.check_integrity()
        if self._hash.hexdigest() != self._file.expected_digest:
            return False
        self._sync()
        self.close()
        os.replace(self._path, self._folder / self._file.name)
        sync_folder(self._folder)
        self._etag_path.unlink(missing_ok=True)
        return True

    def check_integrity(self) -> None:
        """What was counted is what lies on the disk."""
        on_disk = os.fstat(self._descriptor).st_size
        assert on_disk == self.num_bytes <= self._file.num_bytes, (self._path, on_disk, self.num_bytes)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        # A link that someone put there must not lead the bytes elsewhere.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(self._path, flags | getattr(os, "O_NONBLOCK", 0), 0o644)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoRoomError from None
            raise self._unwritable(error) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise DownloadError(f"{self._path}: is not an ordinary file; delete it and pull again")
        return descriptor

    def _read_back(self, check: Callable[[], None]) -> None:
        if os.fstat(self._descriptor).st_size > self._file.num_bytes:
            os.ftruncate(self._descriptor, 0)
        while data := os.read(self._descriptor, _READ_BYTES):
            check()
            self._hash.update(data)
            self.num_bytes += len(data)

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoRoomError from None
            raise self._unwritable(error) from None
        self._num_unsynced = 0

    def _unwritable(self, error: OSError) -> DownloadError:
        return DownloadError(f"{self._path}: can't be written ({error.strerror}); check the disk and its permissions")
