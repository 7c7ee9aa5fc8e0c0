"""The folders that file tools may work in, and the only way from a path to an open file.

Each root is held open. Below it a path is walked one name at a time from descriptor to descriptor, never through a
symbolic link and never up, so that what is checked is what is opened, whatever is renamed meanwhile. Refused: links of
both kinds, devices, pipes, sockets, and file systems that are no storage (/proc, /sys, /dev).

All paths are Linux paths. Everything here may block; call it in a thread.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app.sanitize import clean_line
from app.tools.registry import ToolError

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: a pipe that takes a file's place between check and open must not hold the thread.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_STORAGE = frozenset({
    *("proc", "sysfs", "devtmpfs", "devpts", "debugfs", "tracefs", "securityfs", "cgroup", "cgroup2", "bpf"),
    *("configfs", "pstore", "mqueue", "binfmt_misc", "efivarfs", "fusectl", "nsfs", "hugetlbfs", "selinuxfs"),
})  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A path below a root, as names; `()` is the root itself."""

    root: int
    names: tuple[str, ...]
    path: str
    """Absolute, for permissions."""
    shown: str
    """As the model may write it again."""

    @property
    def folder(self) -> str:
        """The absolute folder that holds it."""
        return str(PurePosixPath(self.path).parent)


class AllowedFolders:
    """Roots by order; a relative path is one below the first."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Raises ToolError, naming the folder that can't be one."""
        self._paths: list[str] = []
        self._given: list[str] = []
        self._descriptors: list[int] = []
        self._no_storage = _devices_without_storage()
        try:
            for folder in folders:
                self._add(folder)
        except BaseException:
            self.close()
            raise

    def _add(self, folder: Path) -> None:
        given = os.path.abspath(folder)
        real = os.path.realpath(given)
        try:
            descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ToolError(f"{clean_line(str(folder))} can't be a root: {error.strerror}; name a folder") from None
        self._descriptors.append(descriptor)
        if os.fstat(descriptor).st_dev in self._no_storage:
            raise ToolError(f"{clean_line(str(folder))} can't be a root: it holds no files but the system's own")
        self._paths.append(real)
        self._given.append(given)

    @property
    def paths(self) -> tuple[str, ...]:
        """Absolute, without links."""
        return tuple(self._paths)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Of the roots, in their order; they stay this object's own."""
        return tuple(self._descriptors)

    def close(self) -> None:
        """Let go of the roots; safe to call twice."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def place(self, path: str) -> Place:
        """Where a path of the model's leads, by its words alone. Raises ToolError."""
        shown = clean_line(path)
        if not path.strip():
            raise ToolError("the path is empty")
        if "\0" in path or not self._paths:
            raise ToolError(f"{shown} is outside the allowed folders")
        pure = PurePosixPath(path)
        if ".." in pure.parts:
            raise ToolError(f"{shown} is outside the allowed folders: '..' is not allowed")
        if not pure.is_absolute():
            return self._below(0, pure.parts)
        roots = [*enumerate(self._paths), *enumerate(self._given)]
        holding = [(len(root), index, root) for index, root in roots if pure.is_relative_to(root)]
        if not holding:
            raise ToolError(f"{shown} is outside the allowed folders")
        _, index, root = max(holding)
        return self._below(index, pure.relative_to(root).parts)

    def _below(self, root: int, names: tuple[str, ...]) -> Place:
        whole = str(PurePosixPath(self._paths[root], *names))
        shown = "/".join(names) or "." if root == 0 else whole
        return Place(root, names, whole, clean_line(shown))

    @contextmanager
    def folder(self, place: Place) -> Iterator[int]:
        """A descriptor of the folder itself. Raises ToolError."""
        descriptor = os.dup(self._descriptors[place.root])
        try:
            for name in place.names:
                with _readable_errors(place.shown, "no such folder"):
                    below = _open_folder(name, descriptor, place.shown)
                os.close(descriptor)
                descriptor = below
                if os.fstat(descriptor).st_dev in self._no_storage:
                    raise ToolError(f"{place.shown} lies in a file system that holds no files")
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, place: Place) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder that holds it, and its last name. Raises ToolError."""
        if not place.names:
            raise ToolError(f"{place.shown} is a folder")
        above = Place(place.root, place.names[:-1], place.folder, place.shown)
        with self.folder(above) as descriptor:
            yield descriptor, place.names[-1]

    @contextmanager
    def file(self, place: Place) -> Iterator[int]:
        """A descriptor to read a regular file. Raises ToolError; MissingFileError where there is none."""
        with self.parent(place) as (folder, name):
            descriptor = self.open_regular(folder, name, place.shown)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open_regular(self, folder: int, name: str, shown: str) -> int:
        """A descriptor to read a regular file that has one name only. Raises ToolError."""
        with _readable_errors(shown, "does not exist"):
            before = os.stat(name, dir_fd=folder, follow_symlinks=False)
            _check_regular(before, shown)
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
        try:
            after = os.fstat(descriptor)
            if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino):
                raise ToolError(f"{shown} was replaced while it was opened; try again")
            _check_regular(after, shown)
            if after.st_dev in self._no_storage:
                raise ToolError(f"{shown} lies in a file system that holds no files")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class MissingFileError(ToolError):
    """There is nothing of that name."""


def _check_regular(found: os.stat_result, shown: str) -> None:
    """Raises ToolError unless it is a regular file with one name."""
    if stat.S_ISLNK(found.st_mode):
        raise ToolError(f"{shown} is a symbolic link; links are not followed")
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{shown} is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{shown} is not a regular file")
    if found.st_nlink > 1:
        raise ToolError(f"{shown} is a hard link: the same file has {found.st_nlink} names; copy it first")


def _open_folder(name: str, above: int, shown: str) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise ToolError(f"{shown} leads through a symbolic link; links are not followed") from None
        raise


@contextmanager
def _readable_errors(shown: str, missing: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        text = f"no such folder: {shown}" if missing == "no such folder" else f"{shown} {missing}"
        raise MissingFileError(text) from None
    except PermissionError:
        raise ToolError(f"permission denied: {shown}") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"{shown} can't be opened: {getattr(error, 'strerror', None) or error}") from None


def _devices_without_storage() -> frozenset[int]:
    """Device numbers of mounted file systems that are no storage; none where the system does not say."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    found = set()
    for line in lines:
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in _NO_STORAGE:
            major, minor = before.split()[2].split(":")
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)
