"""Conversations and messages as rows of SQLite and back. Knows the columns and no query."""

import array
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, fields, replace

from app.messages import Conversation, MalformedCall, Message
from app.store.documents import pack_attachments, unpack_attachments
from runtime.protocol import ToolCall

CONVERSATION_COLUMNS = tuple(field.name for field in fields(Conversation))
MESSAGE_COLUMNS = (
    "id",
    "conversation_id",
    "parent_id",
    "role",
    "content",
    "reasoning",
    "tool_calls",
    "attachments",
    "generated_ids",
    "tokenizer_fingerprint",
    "status",
    "created_at",
    "model_name",
    "malformed_calls",
    "tool_name",
    "tool_status",
    "full_result",
)


def to_row(message: Message) -> list[object]:
    """Values of `MESSAGE_COLUMNS`."""
    packed = replace(message, tool_calls=(), attachments=(), generated_ids=(), malformed_calls=())
    values: dict[str, object] = asdict(packed)
    values["tool_calls"] = json.dumps([asdict(call) for call in message.tool_calls])
    values["attachments"] = pack_attachments(message.attachments)
    values["malformed_calls"] = json.dumps([asdict(call) for call in message.malformed_calls])
    values["generated_ids"] = array.array("I", message.generated_ids).tobytes()
    return [values[column] for column in MESSAGE_COLUMNS]


def to_message(row: sqlite3.Row, texts: Mapping[str, str]) -> Message:
    """The message of a row that has `MESSAGE_COLUMNS`; `texts` has its documents by id."""
    values = {column: row[column] for column in MESSAGE_COLUMNS}
    ids = array.array("I")
    ids.frombytes(values["generated_ids"])
    values["tool_calls"] = tuple(ToolCall(**call) for call in json.loads(values["tool_calls"]))
    values["attachments"] = unpack_attachments(values["attachments"], texts)
    values["malformed_calls"] = tuple(MalformedCall(**call) for call in json.loads(values["malformed_calls"]))
    values["generated_ids"] = tuple(ids)
    return Message(**values)


def to_conversation(row: sqlite3.Row) -> Conversation:
    """The conversation of a row that has `CONVERSATION_COLUMNS`."""
    return Conversation(**{name: row[name] for name in CONVERSATION_COLUMNS})
