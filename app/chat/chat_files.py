"""Chats as files on disk: Markdown to read, JSON to keep and to import. Overwrites nothing.

Blocking; an event loop awaits `store.run(export_chat, store, conversation_id, path)`.
"""

import os
import re
import stat
from pathlib import Path

from app.chat.archive import MAX_BYTES, export_json, import_json
from app.chat.markdown_export import export_markdown
from app.errors import ArchiveError
from app.messages import Conversation
from app.sanitize import clean_line
from app.store.conversations import Store

_MOST_NAME_CHARS = 60


def export_chat(store: Store, conversation_id: str, path: Path) -> Path:
    """Write a conversation to `path`, a new .md or .json file; in a folder it is named by its title.

    Returns the file's path. Raises ArchiveError, or StoreError.
    """
    if path.is_dir():
        path = path / f"{_file_name(store.conversation(conversation_id).title)}.md"
    shown = clean_line(str(path))
    if path.suffix not in (".md", ".json"):
        raise ArchiveError(f"{shown} must end in .md (to read) or .json (to keep and import).")
    is_json = path.suffix == ".json"
    data = export_json(store, conversation_id) if is_json else export_markdown(store, conversation_id).encode()
    try:
        _write_new(path, data)
    except FileExistsError:
        raise ArchiveError(f"{shown} exists already; choose another name.") from None
    except (OSError, ValueError) as error:
        raise ArchiveError(f"{shown} can't be written ({_reason(error)}); choose another place.") from error
    return path


def import_chat(store: Store, path: Path) -> Conversation:
    """Store the conversation of a .json file as a new one. Raises ArchiveError, or StoreError."""
    shown = clean_line(str(path))
    try:
        # A pipe would wait for its writer, a device for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ArchiveError(f"{shown} is not a regular file; name an exported .json file.")
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ArchiveError(f"{shown} can't be read ({_reason(error)}); check the path.") from error
    return import_json(store, data)


def _write_new(path: Path, data: bytes) -> None:
    """The whole file or none: written beside its place under another name first, then linked into place if free."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _file_name(title: str) -> str:
    words = re.sub(r"[^\w.-]+", "-", clean_line(title), flags=re.UNICODE).strip("-.")
    return words[:_MOST_NAME_CHARS].rstrip("-.") or "chat"


def _reason(error: OSError | ValueError) -> str:
    return clean_line(getattr(error, "strerror", None) or str(error))
