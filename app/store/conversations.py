"""Conversations and messages as rows. One message is one transaction: it is there whole, or it never was.

Conversations are trees; a branch is read from its leaf to the root. Texts are stored as given: cleaning is done before.
"""

import array
import json
import sqlite3
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.errors import StoreError
from app.messages import Attachment, Conversation, MalformedCall, Message, MessageStatus, new_id
from app.store.database import Database
from app.store.permissions import PermissionStore
from runtime.protocol import ToolCall

_MISSING = "This conversation no longer exists; choose another or start a new chat."


@dataclass(frozen=True)
class SearchHit:
    """A message that has the searched words; `excerpt` is the text around them."""

    conversation_id: str
    message_id: str
    title: str
    excerpt: str


class MissingConversationError(StoreError):
    """There is no conversation of that id: never stored, or deleted by another instance."""


class Store:
    """All conversations of one user. Every failure is a `StoreError`; nothing is changed by a call that fails."""

    def __init__(self, database: Database, is_in_memory: bool) -> None:
        self._database = database
        self.is_in_memory = is_in_memory
        self.permissions = PermissionStore(database)

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Open or create the database file. Raises StoreError."""
        return cls(Database.open(path), is_in_memory=False)

    @classmethod
    def open_or_in_memory(cls, path: Path) -> tuple["Store", str | None]:
        """The store of `path`, or one in memory with the line that tells the user why."""
        try:
            return cls.open(path), None
        except StoreError as error:
            return cls.in_memory(), f"{error} Until then chats are not saved."

    @classmethod
    def in_memory(cls) -> "Store":
        """A store that lasts as long as the process."""
        return cls(Database.open(None), is_in_memory=True)

    def create_conversation(self, model: str, title: str = "", conversation_id: str | None = None) -> Conversation:
        """A conversation without messages. Creating one that exists returns the existing one."""
        now = time.time()
        created = Conversation(conversation_id or new_id(), title, now, now, None, model)
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO conversations(id, title, model, created_at, updated_at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT(id) DO NOTHING",
                (created.id, title, model, now, now),
            )
        return self.conversation(created.id)

    def append_message(self, message: Message) -> None:
        """Store a message and make it its conversation's head. Storing one twice changes nothing.

        Raises MissingConversationError, or another StoreError.
        """
        with self._database.transaction() as connection:
            if not connection.execute(
                "SELECT 1 FROM conversations WHERE id = ?", (message.conversation_id,)
            ).fetchone():
                raise MissingConversationError(_MISSING)
            connection.execute(
                f"INSERT INTO messages({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
                " ON CONFLICT(id) DO NOTHING",
                _to_row(message),
            )
            connection.execute(
                "UPDATE conversations SET head_id = ?, updated_at = ? WHERE id = ?",
                (message.id, message.created_at, message.conversation_id),
            )

    def mark_message(self, message_id: str, status: MessageStatus) -> None:
        """Change how a message ended."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE messages SET status = ? WHERE id = ?", (status, message_id))

    def set_head(self, conversation_id: str, message_id: str | None) -> None:
        """Choose the leaf a conversation is seen from."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE conversations SET head_id = ? WHERE id = ?", (message_id, conversation_id))

    def rename(self, conversation_id: str, title: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("UPDATE conversations SET title = ? WHERE id = ?", (title, conversation_id))

    def set_model(self, conversation_id: str, model: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("UPDATE conversations SET model = ? WHERE id = ?", (model, conversation_id))

    def delete(self, conversation_id: str) -> None:
        """Remove a conversation with all its branches."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))

    def conversation(self, conversation_id: str) -> Conversation:
        """Raises MissingConversationError."""
        rows = self._database.read("SELECT * FROM conversations WHERE id = ?", conversation_id)
        if not rows:
            raise MissingConversationError(_MISSING)
        return _to_conversation(rows[0])

    def list_conversations(self, limit: int = 100, query: str = "") -> list[Conversation]:
        """Newest first, those with messages only; with a query those whose title or messages have all its words."""
        words = _search_words(query)
        if not words:
            rows = self._database.read(
                "SELECT * FROM conversations WHERE head_id IS NOT NULL ORDER BY updated_at DESC LIMIT ?", limit
            )
        else:
            rows = self._database.read(
                "SELECT * FROM conversations WHERE head_id IS NOT NULL AND (instr(lower(title), lower(?)) OR id IN"
                " (SELECT conversation_id FROM messages JOIN message_words ON messages.row_id = message_words.rowid"
                "  WHERE message_words MATCH ?)) ORDER BY updated_at DESC LIMIT ?",
                query.strip(),
                words,
                limit,
            )
        return [_to_conversation(row) for row in rows]

    def search(self, query: str, limit: int = 50) -> list[SearchHit]:
        """Messages that have all words of the query (the last may be a beginning), best first."""
        words = _search_words(query)
        if not words:
            return []
        rows = self._database.read(
            "SELECT m.conversation_id, m.id, c.title, snippet(message_words, 0, '', '', '…', 16) AS excerpt"
            " FROM message_words JOIN messages m ON m.row_id = message_words.rowid"
            " JOIN conversations c ON c.id = m.conversation_id"
            " WHERE message_words MATCH ? ORDER BY rank LIMIT ?",
            words,
            limit,
        )
        return [SearchHit(row["conversation_id"], row["id"], row["title"], row["excerpt"]) for row in rows]

    def branch(self, head_id: str | None) -> list[Message]:
        """Messages from the first to `head_id`."""
        rows = self._database.read(
            "WITH RECURSIVE path(id, parent_id, depth) AS ("
            " SELECT id, parent_id, 0 FROM messages WHERE id = ?"
            " UNION ALL SELECT m.id, m.parent_id, depth + 1 FROM messages m JOIN path ON m.id = path.parent_id)"
            " SELECT messages.* FROM path JOIN messages ON messages.id = path.id ORDER BY depth DESC",
            head_id,
        )
        return [_to_message(row) for row in rows]

    def leaves(self, conversation_id: str) -> list[Message]:
        """The last message of every branch, newest first."""
        rows = self._database.read(
            "SELECT * FROM messages m WHERE conversation_id = ?"
            " AND NOT EXISTS (SELECT 1 FROM messages child WHERE child.parent_id = m.id) ORDER BY created_at DESC",
            conversation_id,
        )
        return [_to_message(row) for row in rows]

    def close(self) -> None:
        self._database.close()


_COLUMNS = (
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
)


def _to_row(message: Message) -> list[object]:
    packed = replace(message, tool_calls=(), attachments=(), generated_ids=(), malformed_calls=())
    values: dict[str, object] = asdict(packed)
    values["tool_calls"] = json.dumps([asdict(call) for call in message.tool_calls])
    values["attachments"] = json.dumps([asdict(attachment) for attachment in message.attachments])
    values["malformed_calls"] = json.dumps([asdict(call) for call in message.malformed_calls])
    values["generated_ids"] = array.array("I", message.generated_ids).tobytes()
    return [values[column] for column in _COLUMNS]


def _to_message(row: sqlite3.Row) -> Message:
    values = {column: row[column] for column in _COLUMNS}
    ids = array.array("I")
    ids.frombytes(values["generated_ids"])
    values["tool_calls"] = tuple(ToolCall(**call) for call in json.loads(values["tool_calls"]))
    values["attachments"] = tuple(Attachment(**attachment) for attachment in json.loads(values["attachments"]))
    values["malformed_calls"] = tuple(MalformedCall(**call) for call in json.loads(values["malformed_calls"]))
    values["generated_ids"] = tuple(ids)
    return Message(**values)


def _to_conversation(row: sqlite3.Row) -> Conversation:
    return Conversation(**{name: row[name] for name in Conversation.__dataclass_fields__})


def _search_words(query: str) -> str:
    """An FTS5 expression that takes the user's words literally, the last one as a beginning."""
    words = [word.replace('"', '""') for word in query.replace("\0", " ").split()]
    return " ".join(f'"{word}"' for word in words) + "*" if words else ""
