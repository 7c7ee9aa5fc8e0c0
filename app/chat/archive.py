"""A conversation as a JSON file and back: all branches and what a person can see of them, checked on the way in.

Not in the file: token ids, so that what the model reads of an imported chat is what the user reads; the pin; the time
of the last change. Exporting an import gives the same bytes.
"""

import json
from dataclasses import replace
from typing import Any, cast

from app.errors import ArchiveError
from app.messages import Attachment, Conversation, Message, new_id
from app.sanitize import clean, clean_line
from app.store.conversations import Store
from app.typed_json import ShapeError, from_plain, to_plain

FORMAT = "hotslot-conversation"
VERSION = 1
MAX_BYTES = 64 * 2**20
_MOST_BRACKETS, _MOST_COMMAS = 2**21, 2**22
"""Of a file: each costs about a hundred times its byte in memory, and text alone has few."""
_MOST_NAME_CHARS = 1000
_LATEST_UNIX_S = 4e9
_LEFT_OUT = ("conversation_id", "parent_id", "id", "generated_ids", "tokenizer_fingerprint")


def export_json(store: Store, conversation_id: str) -> bytes:
    """The file of a conversation. Blocking; raises StoreError."""
    conversation = store.conversation(conversation_id)
    messages = store.messages(conversation_id)
    places = {message.id: place for place, message in enumerate(messages)}
    archive = {
        "format": FORMAT,
        "version": VERSION,
        "title": conversation.title,
        "model": conversation.model,
        "created_at": conversation.created_at,
        "head": places[conversation.head_id] if conversation.head_id is not None else None,
        "messages": [
            {"parent": None if message.parent_id is None else places[message.parent_id], **_visible(message)}
            for message in messages
        ],
    }
    return (json.dumps(archive, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def import_json(store: Store, data: bytes) -> Conversation:
    """Store an exported conversation as a new one, or nothing of it. Blocking; raises ArchiveError, or StoreError."""
    try:
        conversation, messages, head_id = _read(_parse(data))
    except ShapeError as error:
        raise ArchiveError(f"This is no chat exported by Hotslot: {clean_line(str(error))}.") from None
    except RecursionError:
        raise ArchiveError("This is no chat exported by Hotslot: its values are nested too deep.") from None
    store.write_conversation(conversation, messages, head_id)
    return store.conversation(conversation.id)


def _visible(message: Message) -> dict[str, Any]:
    plain = to_plain(message)
    return cast(dict[str, Any], _cleaned({name: plain[name] for name in plain if name not in _LEFT_OUT}))


def _cleaned(plain: Any) -> Any:
    """Stored texts are clean already, but for the arguments of calls."""
    if isinstance(plain, str):
        return clean(plain)
    if isinstance(plain, list):
        return [_cleaned(item) for item in plain]
    if isinstance(plain, dict):
        return {clean(key): _cleaned(item) for key, item in plain.items()}
    return plain


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise ArchiveError(f"The file is larger than {MAX_BYTES // 2**20} MiB; no chat that large can be imported.")
    if data.count(b"[") + data.count(b"{") > _MOST_BRACKETS or data.count(b",") > _MOST_COMMAS:
        raise ShapeError("it has too many values")
    try:
        archive = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except ShapeError:
        raise
    except ValueError:
        # Not UTF-8, not JSON, or a number of thousands of digits.
        raise ShapeError("it is not JSON") from None
    if not isinstance(archive, dict) or archive.get("format") != FORMAT:
        raise ShapeError(f"its format is not {FORMAT!r}")
    if archive.get("version") != VERSION:
        raise ArchiveError("This chat was exported by another version of Hotslot; update, then import it again.")
    return archive


def _refuse_constant(name: str) -> None:
    raise ShapeError(f"{name} is not a number")


def _read(archive: dict[str, Any]) -> tuple[Conversation, list[Message], str | None]:
    expected = {"format", "version", "title", "model", "created_at", "head", "messages"}
    if archive.keys() != expected:
        odd = sorted(map(str, archive.keys() ^ expected))[0]
        raise ShapeError(f"{odd[:40]!r} is missing or unknown")
    plain_messages = archive["messages"]
    if not isinstance(plain_messages, list) or not plain_messages:
        raise ShapeError("messages must be a list that is not empty")
    known = {name: archive[name] for name in ("title", "model", "created_at")}
    conversation = from_plain(Conversation, known, "the chat", clean, id=new_id(), updated_at=0.0, head_id=None)
    if max(len(conversation.title), len(conversation.model)) > _MOST_NAME_CHARS:
        raise ShapeError(f"its title or model has more than {_MOST_NAME_CHARS} characters")
    conversation = replace(conversation, title=clean_line(conversation.title), model=clean_line(conversation.model))
    _check_time(conversation.created_at, "created_at")
    messages: list[Message] = []
    for place, plain in enumerate(plain_messages):
        messages.append(_read_message(plain, f"messages[{place}]", messages, conversation.id))
    head = _earlier(archive["head"], "head", messages)
    return replace(conversation, updated_at=messages[-1].created_at), messages, head.id if head is not None else None


def _read_message(plain: Any, place: str, before: list[Message], conversation_id: str) -> Message:
    if not isinstance(plain, dict) or "parent" not in plain:
        raise ShapeError(f"{place} must be an object with a parent")
    parent = _earlier(plain["parent"], f"{place}.parent", before)
    for name in _LEFT_OUT:
        if name in plain:
            raise ShapeError(f"{place} has an unknown field {name!r}")
    visible = {name: value for name, value in plain.items() if name != "parent"}
    message = from_plain(
        Message,
        visible,
        place,
        clean,
        conversation_id=conversation_id,
        parent_id=parent.id if parent is not None else None,
        id=new_id(),
    )
    if message.role == "system":
        raise ShapeError(f"{place}.role must be one of user, assistant, tool")
    if message.role == "tool" and (parent is None or parent.role == "user"):
        raise ShapeError(f"{place} is a tool's answer to no call")
    _check_time(message.created_at, f"{place}.created_at")
    for attachment in message.attachments:
        _check_blocks(attachment, place)
    return message


def _check_blocks(attachment: Attachment, place: str) -> None:
    """A short list of ranges must not show a document a million times."""
    last_end = -1
    for first, end in attachment.reading.blocks if attachment.reading is not None else ():
        if not last_end < first < end:
            raise ShapeError(f"{place} shows blocks of a document that do not ascend")
        last_end = end


def _earlier(place_of: Any, place: str, messages: list[Message]) -> Message | None:
    """The message that a number names; it comes before, so there is no circle."""
    if place_of is None:
        return None
    if not isinstance(place_of, int) or isinstance(place_of, bool) or not 0 <= place_of < len(messages):
        raise ShapeError(f"{place} must be the number of a message before it, or null")
    return messages[place_of]


def _check_time(unix_s: float, place: str) -> None:
    if not 0 <= unix_s <= _LATEST_UNIX_S:
        raise ShapeError(f"{place} is no time in Unix seconds")
