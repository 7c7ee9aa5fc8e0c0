"""Reading, listing and searching files below the allowed folders."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.sanitize import clean_line
from app.threads import in_thread
from app.tools.file_text import MAX_BYTES, decode, read_bytes, read_text
from app.tools.folders import AllowedFolders, Place
from app.tools.registry import Arguments, Scope, Tool, ToolError, text_schema

READ_FILE = text_schema("read_file", "Read a text file and return its contents.", path="Path of the file")
LIST_FILES = text_schema(
    "list_files", "List the files and folders in a folder.", folder="Path of the folder; . is the current one"
)
SEARCH_FILES = text_schema(
    "search_files",
    "Find the files in a folder that contain a text.",
    query="Text to look for",
    folder="Path of the folder to search",
)
MAX_ENTRIES = 500
MAX_MATCHES = 50
MAX_SEARCHED_FILES = 20_000
MAX_SEARCH_S = 10.0
MAX_DEPTH = 40
MAX_EXCERPT_CHARS = 200


def read_tools(folders: AllowedFolders) -> list[Tool]:
    """The three tools over these folders."""

    def scope_of(name: str, parameter: str, is_file: bool) -> Scope:
        place = folders.place(parameter)
        folder = place.folder if is_file and place.names else place.path
        return Scope(name, folder, seen=place, reaches_below=name == "search_files")

    async def examine_read(arguments: Arguments) -> Scope:
        return scope_of("read_file", arguments["path"], is_file=True)

    async def examine_list(arguments: Arguments) -> Scope:
        return scope_of("list_files", arguments["folder"], is_file=False)

    async def examine_search(arguments: Arguments) -> Scope:
        if not arguments["query"].strip():
            raise ToolError("the query is empty")
        return scope_of("search_files", arguments["folder"], is_file=False)

    async def read(_: Arguments, scope: Scope) -> str:
        return await in_thread(lambda _: read_file(folders, _place(scope)))

    async def list_(_: Arguments, scope: Scope) -> str:
        return await in_thread(lambda _: list_folder(folders, _place(scope)))

    async def search(arguments: Arguments, scope: Scope) -> str:
        query = arguments["query"]
        return await in_thread(lambda is_cancelled: Search(folders, query, is_cancelled).run(_place(scope)))

    return [
        Tool(READ_FILE, "read", read, examine_read),
        Tool(LIST_FILES, "read", list_, examine_list),
        Tool(SEARCH_FILES, "read", search, examine_search),
    ]


def _place(scope: Scope) -> Place:
    assert isinstance(scope.seen, Place)
    return scope.seen


def read_file(folders: AllowedFolders, place: Place) -> str:
    """The text of a file. Raises ToolError."""
    with folders.file(place) as descriptor:
        return read_text(descriptor, place.shown) or "(empty file)"


def list_folder(folders: AllowedFolders, place: Place) -> str:
    """Names by line, folders with a slash, links with an @. Raises ToolError."""
    with folders.folder(place) as descriptor:
        entries = _entries(descriptor, place.shown)
        lines = [_name(entry) + _mark(entry) for entry in entries[:MAX_ENTRIES]]
    if len(entries) > MAX_ENTRIES:
        lines.append(f"[cut: {MAX_ENTRIES} of {len(entries)} entries]")
    return "\n".join(lines) or "(empty)"


def _entries(descriptor: int, shown: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(descriptor) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise ToolError(f"{shown} can't be listed: {error.strerror}") from None


def _name(entry: os.DirEntry[str]) -> str:
    """As it may be shown; bytes that are no text become question marks in boxes."""
    return clean_line(os.fsencode(entry.name).decode("utf-8", "replace"))


def _mark(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "@"
    return "/" if entry.is_dir(follow_symlinks=False) else ""


@dataclass
class Search:
    """One search, with its bounds; what was left out is said at the end."""

    folders: AllowedFolders
    query: str
    is_cancelled: threading.Event
    matches: list[str] = field(default_factory=list)
    num_files: int = 0
    num_skipped: int = 0
    stopped_by: str = ""
    began_s: float = field(default_factory=time.monotonic)

    def run(self, place: Place) -> str:
        """Matches as `path:line: text`. Raises ToolError."""
        needle = self.query.casefold()
        with self.folders.folder(place) as descriptor:
            for folder, name, shown in self._files(descriptor, place):
                self._search_file(folder, name, shown, needle)
                if self._is_over():
                    break
        notes = [f"[stopped: {self.stopped_by}]"] if self.stopped_by else []
        if self.num_skipped:
            notes.append(f"[{self.num_skipped} skipped: links, folders too deep, files that are no text or too large]")
        return "\n".join([*(self.matches or ["No matches."]), *notes])

    def _files(self, descriptor: int, place: Place, depth: int = 0) -> Iterator[tuple[int, str, str]]:
        """Regular files below an open folder, in order of name: the folder's descriptor, the name, the path."""
        for entry in _entries(descriptor, place.shown):
            shown = _name(entry) if place.shown == "." else f"{place.shown}/{_name(entry)}"
            if entry.is_symlink():
                self.num_skipped += 1
            elif not entry.is_dir(follow_symlinks=False):
                yield descriptor, entry.name, shown
            elif depth >= MAX_DEPTH:
                self.num_skipped += 1
            else:
                below = Place(place.root, (*place.names, entry.name), f"{place.path}/{entry.name}", shown)
                try:
                    with self.folders.folder(below) as inner:
                        yield from self._files(inner, below, depth + 1)
                except ToolError:
                    # Unreadable, or gone meanwhile.
                    self.num_skipped += 1
            if self._is_over():
                return

    def _search_file(self, folder: int, name: str, shown: str, needle: str) -> None:
        self.num_files += 1
        try:
            descriptor = self.folders.open_regular(folder, name, shown)
        except ToolError:
            self.num_skipped += 1
            return
        try:
            if os.fstat(descriptor).st_size > MAX_BYTES:
                raise ToolError("too large")
            text = decode(read_bytes(descriptor), shown)
        except (OSError, ToolError):
            self.num_skipped += 1
            return
        finally:
            os.close(descriptor)
        for number, line in enumerate(text.splitlines(), 1):
            if needle in line.casefold():
                self.matches.append(f"{shown}:{number}: {_excerpt(line)}")
                if len(self.matches) >= MAX_MATCHES:
                    return

    def _is_over(self) -> bool:
        if self.is_cancelled.is_set():
            self.stopped_by = "cancelled"
        elif len(self.matches) >= MAX_MATCHES:
            self.stopped_by = f"{MAX_MATCHES} matches"
        elif self.num_files >= MAX_SEARCHED_FILES:
            self.stopped_by = f"{MAX_SEARCHED_FILES} files"
        elif time.monotonic() - self.began_s > MAX_SEARCH_S:
            self.stopped_by = f"{MAX_SEARCH_S:.0f} seconds"
        return bool(self.stopped_by)


def _excerpt(line: str) -> str:
    line = clean_line(line)
    return line if len(line) <= MAX_EXCERPT_CHARS else f"{line[:MAX_EXCERPT_CHARS]}…"
