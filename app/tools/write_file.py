"""Writing a text file below the allowed folders: whole, atomically, and only over what the user was shown.

The new text goes into a file of its own beside the old one and takes its name, so that a link of either kind is
replaced and never written through.
"""

import difflib
import errno
import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass

from app.threads import in_thread
from app.tools.file_text import MAX_BYTES, decode, read_bytes
from app.tools.folders import AllowedFolders, MissingFileError, Place
from app.tools.registry import Arguments, Scope, Tool, ToolError, text_schema

WRITE_FILE = text_schema(
    "write_file",
    "Write a text to a file, replacing what it held.",
    path="Path of the file",
    content="The whole new text",
)
_MAX_DIFFED_LINES = 4000
"""Of both texts; above it the diff is all of the old text, then all of the new one."""
_OWN_FOLDERS = frozenset({".git", ".hg", ".svn"})
"""What version control keeps there runs as programs."""


@dataclass(frozen=True)
class Seen:
    """The place when the diff was made: the folder's identity, and the old file's with its content's hash."""

    place: Place
    folder: tuple[int, int]
    file: tuple[int, int, str] | None


def write_file(folders: AllowedFolders) -> Tool:
    """The built-in tool."""

    async def examine(arguments: Arguments) -> Scope:
        return await in_thread(lambda _: look_at_write(folders, arguments["path"], arguments["content"]))

    async def run(arguments: Arguments, scope: Scope) -> str:
        assert isinstance(scope.seen, Seen)
        seen = scope.seen
        return await in_thread(lambda _: replace_file(folders, seen, arguments["content"]))

    return Tool(WRITE_FILE, "write", run, examine)


def look_at_write(folders: AllowedFolders, path: str, content: str) -> Scope:
    """What would change, as a diff. Raises ToolError."""
    place = folders.place(path)
    if _OWN_FOLDERS & set(place.names):
        raise ToolError(f"{place.shown} belongs to version control and is not written")
    if len(content.encode("utf-8", "replace")) > MAX_BYTES:
        raise ToolError(f"the content is larger than {MAX_BYTES // 2**20} MiB")
    with folders.parent(place) as (folder, name):
        found = os.fstat(folder)
        old, file = _old_file(folders, folder, name, place.shown)
    seen = Seen(place, (found.st_dev, found.st_ino), file)
    return Scope("write_file", place.folder, _diff(old, content, place.shown), seen)


def replace_file(folders: AllowedFolders, seen: Seen, content: str) -> str:
    """Write it if the place is still as it was seen. Raises ToolError."""
    shown = seen.place.shown
    data = content.encode("utf-8", "replace")
    with folders.parent(seen.place) as (folder, name):
        found = os.fstat(folder)
        _, file = _old_file(folders, folder, name, shown)
        if (found.st_dev, found.st_ino) != seen.folder or file != seen.file:
            raise ToolError(f"{shown} was changed meanwhile; look at it and try again")
        try:
            _put(folder, name, data, seen.file is not None)
        except FileExistsError:
            raise ToolError(f"{shown} was made by something else meanwhile; look at it and try again") from None
        except OSError as error:
            raise ToolError(_reason(error, shown)) from None
    return f"Wrote {len(data)} bytes to {shown}."


def _old_file(
    folders: AllowedFolders, folder: int, name: str, shown: str
) -> tuple[str | None, tuple[int, int, str] | None]:
    """Text (None: no text to show) and identity of what is there; ('', None) where nothing is."""
    try:
        descriptor = folders.open_regular(folder, name, shown)
    except MissingFileError:
        return "", None
    try:
        found = os.fstat(descriptor)
        data = read_bytes(descriptor, MAX_BYTES + 1)
    except OSError as error:
        raise ToolError(_reason(error, shown)) from None
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise ToolError(f"{shown} is larger than {MAX_BYTES // 2**20} MiB, so its change can't be shown")
    identity = (found.st_dev, found.st_ino, hashlib.sha256(data).hexdigest())
    try:
        return decode(data, shown), identity
    except ToolError:
        return None, identity


def _put(folder: int, name: str, data: bytes, is_replacing: bool) -> None:
    """A new file under the name, all of it or nothing. Raises OSError."""
    partial = f".{secrets.token_hex(8)}.part"
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode & 0o777 if is_replacing else None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(partial, flags, 0o666, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if is_replacing:
            os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            _name_new(folder, partial, name)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=folder)


def _name_new(folder: int, partial: str, name: str) -> None:
    """Give it a name that nothing has. Raises FileExistsError."""
    try:
        os.link(partial, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # A file system without hard links.
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)


def _diff(old: str | None, new: str, shown: str) -> str:
    if old is None:
        return f"--- {shown}\n+++ {shown}\n[the old file is no text and is replaced whole]\n" + _all(new, "+")
    if old == new:
        return ""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _MAX_DIFFED_LINES:
        return f"--- {shown}\n+++ {shown}\n" + _all(old, "-") + "\n" + _all(new, "+")
    return "\n".join(difflib.unified_diff(before, after, shown, shown, lineterm=""))


def _all(text: str, mark: str) -> str:
    return "\n".join(mark + line for line in text.splitlines())


def _reason(error: OSError, shown: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full"
    if isinstance(error, PermissionError):
        return f"permission denied: {shown}"
    return f"{shown} can't be written: {error.strerror}"
