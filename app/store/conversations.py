"""Conversations and messages as rows. One message is one transaction: it is there whole, or it never was.

Conversations are trees; a branch is read from its leaf to the root. Texts are stored as given: cleaning is done before.
A deleted conversation keeps its rows for a while, so that deleting can be undone; nothing lists, finds or opens it.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.errors import StoreError
from app.messages import Conversation, Message, MessageStatus, new_id
from app.store.database import Arguments, Database, Result
from app.store.documents import documents_problems, pack_attachments, read_texts, write_documents
from app.store.permissions import PermissionStore
from app.store.rows import CONVERSATION_COLUMNS, MESSAGE_COLUMNS, to_conversation, to_message, to_row

KEPT_DELETED_S = 7 * 24 * 3600.0
"""So long can a deletion be undone; then the next new chat or deletion removes the rows."""
_MISSING = "This conversation no longer exists; choose another or start a new chat."
_IS_LISTED = "head_id IS NOT NULL AND deleted_at IS NULL"
_PINNED_THEN_NEWEST = "ORDER BY pinned_at IS NULL, updated_at DESC LIMIT ?"
_MARK_START, _MARK_END = "\x02", "\x03"
"""Around found words on their way out of SQLite; stored texts are clean and have none."""


@dataclass(frozen=True)
class SearchHit:
    """A message that has the searched words; `excerpt` is the text around them.

    `matches` are the places of the words in the excerpt, start and end, in order.
    """

    conversation_id: str
    message_id: str
    title: str
    excerpt: str
    matches: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class MessageLink:
    """A message's place in its tree, without what it says."""

    id: str
    parent_id: str | None


class MissingConversationError(StoreError):
    """There is no conversation of that id: never stored, or deleted, perhaps by another instance."""


class Store:
    """All conversations of one user. Every failure is a `StoreError`; nothing is changed by a call that fails.

    The methods wait for the disk and for other programs: an event loop awaits `run(store.method, …)` instead.
    """

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
    def open_later(cls, path: Path) -> "Store":
        """Opened by the first `run`, for a screen that is to be there before; `problem` then says if it can't be."""
        return cls(Database.open_later(path), is_in_memory=False)

    @property
    def problem(self) -> str:
        """Why a file that was to be opened late is not used, and chats are not saved."""
        return self._database.problem

    @classmethod
    def in_memory(cls) -> "Store":
        """A store that lasts as long as the process."""
        return cls(Database.open(None), is_in_memory=True)

    async def run(
        self, call: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """The door for event loops: what `call` gives, made in order on the store's own thread, come what may.

        `call` is one of the methods below, or a function that calls several of them.
        """
        return await self._database.run(call, *args, **kwargs)

    # ---- writing

    def create_conversation(self, model: str, title: str = "") -> Conversation:
        """A conversation without messages."""
        now = time.time()
        created = Conversation(new_id(), title, now, now, None, model)
        self.write_conversation(created, ())
        return self.conversation(created.id)

    def write_conversation(
        self, conversation: Conversation, messages: Sequence[Message], head_id: str | None = None
    ) -> None:
        """Store a conversation, where it is missing, with these messages, parents first, in one transaction.

        Its head becomes `head_id`, or the last message.
        """
        values = [getattr(conversation, name) for name in CONVERSATION_COLUMNS]
        with self._database.transaction() as connection:
            _purge(connection)
            connection.execute(
                f"INSERT INTO conversations({', '.join(CONVERSATION_COLUMNS)})"
                f" VALUES ({', '.join('?' * len(values))}) ON CONFLICT(id) DO NOTHING",
                [
                    None if name == "head_id" else value
                    for name, value in zip(CONVERSATION_COLUMNS, values, strict=True)
                ],
            )
            _append(connection, conversation.id, messages)
            if head_id is not None:
                connection.execute("UPDATE conversations SET head_id = ? WHERE id = ?", (head_id, conversation.id))

    def append_message(self, message: Message) -> None:
        """Store a message and make it its conversation's head. Storing one twice changes nothing.

        Saying something in a deleted conversation brings it back.
        Raises MissingConversationError, or another StoreError.
        """
        self.append_messages((message,))

    def append_messages(self, messages: Sequence[Message]) -> None:
        """`append_message` for several of one conversation, parents first, in one transaction."""
        with self._database.transaction() as connection:
            _append(connection, messages[0].conversation_id, messages)

    def mark_message(self, message_id: str, status: MessageStatus) -> None:
        """Change how a message ended."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE messages SET status = ? WHERE id = ?", (status, message_id))

    def set_attachments(self, message: Message) -> None:
        """Store how the documents of a stored message are read, and which documents it shows."""
        with self._database.transaction() as connection:
            changed = connection.execute(
                "UPDATE messages SET attachments = ? WHERE id = ?", (pack_attachments(message.attachments), message.id)
            )
            if changed.rowcount:
                write_documents(connection, (message,))

    def set_head(self, conversation_id: str, message_id: str | None) -> None:
        """Choose the leaf a conversation is seen from."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE conversations SET head_id = ? WHERE id = ?", (message_id, conversation_id))

    def rename(self, conversation_id: str, title: str) -> None:
        """The user's own title; no model replaces it."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE conversations SET title = ?, title_source = 'user' WHERE id = ?", (title, conversation_id)
            )

    def suggest_title(self, conversation_id: str, title: str) -> bool:
        """A model's title, taken where the title is still the first words; returns whether it was."""
        with self._database.transaction() as connection:
            changed = connection.execute(
                "UPDATE conversations SET title = ?, title_source = 'model' WHERE id = ? AND title_source = 'words'",
                (title, conversation_id),
            )
            return changed.rowcount > 0

    def pin(self, conversation_id: str) -> None:
        """List it before all that are not pinned."""
        self._set_time("pinned_at", conversation_id, time.time())

    def unpin(self, conversation_id: str) -> None:
        self._set_time("pinned_at", conversation_id, None)

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation with all its branches; `undelete` brings it back within `KEPT_DELETED_S`."""
        self._set_time("deleted_at", conversation_id, time.time())

    def undelete(self, conversation_id: str) -> None:
        """Undo `delete`: branches, head, pin and title are as before. Raises MissingConversationError when too late."""
        self._set_time("deleted_at", conversation_id, None)

    def undelete_last(self) -> Conversation:
        """`undelete` what was deleted last, in whichever run or instance. Raises StoreError where there is nothing."""
        deleted = self.list_deleted(limit=1)
        if not deleted:
            raise StoreError("There is no deleted chat to bring back.")
        self.undelete(deleted[0].id)
        return self.conversation(deleted[0].id)

    def _set_time(self, column: str, conversation_id: str, unix_s: float | None) -> None:
        with self._database.transaction() as connection:
            changed = connection.execute(
                f"UPDATE conversations SET {column} = ? WHERE id = ?", (unix_s, conversation_id)
            )
            if not changed.rowcount:
                raise MissingConversationError(_MISSING)
            _purge(connection)

    def fork(self, message_id: str) -> Conversation:
        """A new conversation that begins with all up to this message, which becomes its head.

        The messages are copied, so that neither conversation is touched by what becomes of the other.
        Raises MissingConversationError where there is no such message.
        """
        branch = self.branch(message_id)
        if not branch:
            raise MissingConversationError(_MISSING)
        origin = self.conversation(branch[0].conversation_id)
        now = time.time()
        forked = replace(origin, id=new_id(), title=f"{origin.title} (fork)", title_source="user", pinned_at=None)
        forked = replace(forked, created_at=now, updated_at=now)
        self.write_conversation(forked, copies(branch, forked.id))
        return self.conversation(forked.id)

    # ---- reading

    def conversation(self, conversation_id: str) -> Conversation:
        """Raises MissingConversationError."""
        rows = self._database.read("SELECT * FROM conversations WHERE id = ? AND deleted_at IS NULL", conversation_id)
        if not rows:
            raise MissingConversationError(_MISSING)
        return to_conversation(rows[0])

    def list_conversations(self, limit: int = 100, query: str = "") -> list[Conversation]:
        """Pinned ones, then newest first, those with messages only.

        With a query those whose title or messages have all its words.
        """
        words = _search_words(query)
        if not words:
            rows = self._database.read(f"SELECT * FROM conversations WHERE {_IS_LISTED} {_PINNED_THEN_NEWEST}", limit)
        else:
            rows = self._database.read(
                f"SELECT * FROM conversations WHERE {_IS_LISTED} AND (instr(lower(title), lower(?)) OR id IN"
                " (SELECT conversation_id FROM messages JOIN message_words ON messages.row_id = message_words.rowid"
                f"  WHERE message_words MATCH ?)) {_PINNED_THEN_NEWEST}",
                query.strip(),
                words,
                limit,
            )
        return [to_conversation(row) for row in rows]

    def list_deleted(self, limit: int = 100) -> list[Conversation]:
        """Those that `undelete` can bring back, last deleted first."""
        rows = self._database.read(
            "SELECT * FROM conversations WHERE deleted_at IS NOT NULL ORDER BY deleted_at DESC LIMIT ?", limit
        )
        return [to_conversation(row) for row in rows]

    def search(self, query: str, limit: int = 50) -> list[SearchHit]:
        """Messages that have all words of the query (the last may be a beginning), best first."""
        words = _search_words(query)
        if not words:
            return []
        rows = self._database.read(
            "SELECT m.conversation_id, m.id, c.title, snippet(message_words, 0, ?, ?, '…', 16) AS excerpt"
            " FROM message_words JOIN messages m ON m.row_id = message_words.rowid"
            " JOIN conversations c ON c.id = m.conversation_id"
            " WHERE message_words MATCH ? AND c.deleted_at IS NULL ORDER BY rank LIMIT ?",
            _MARK_START,
            _MARK_END,
            words,
            limit,
        )
        return [SearchHit(row["conversation_id"], row["id"], row["title"], *_unmarked(row["excerpt"])) for row in rows]

    def branch(self, head_id: str | None) -> list[Message]:
        """Messages from the first to `head_id`."""
        rows = self._database.read(
            "WITH RECURSIVE path(id, parent_id, depth) AS ("
            " SELECT id, parent_id, 0 FROM messages WHERE id = ?"
            " UNION ALL SELECT m.id, m.parent_id, depth + 1 FROM messages m JOIN path ON m.id = path.parent_id)"
            " SELECT messages.* FROM path JOIN messages ON messages.id = path.id ORDER BY depth DESC",
            head_id,
        )
        return self._messages(rows)

    def leaves(self, conversation_id: str) -> list[Message]:
        """The last message of every branch, newest first."""
        rows = self._database.read(
            "SELECT * FROM messages m WHERE conversation_id = ?"
            " AND NOT EXISTS (SELECT 1 FROM messages child WHERE child.parent_id = m.id) ORDER BY created_at DESC",
            conversation_id,
        )
        return self._messages(rows)

    def links(self, conversation_id: str) -> list[MessageLink]:
        """Every message's place in the tree, in the order in which they were stored: parents first."""
        rows = self._database.read(
            "SELECT id, parent_id FROM messages WHERE conversation_id = ? ORDER BY row_id", conversation_id
        )
        return [MessageLink(row["id"], row["parent_id"]) for row in rows]

    def messages(self, conversation_id: str) -> list[Message]:
        """All messages of all branches, in the order in which they were stored: parents first."""
        rows = self._database.read("SELECT * FROM messages WHERE conversation_id = ? ORDER BY row_id", conversation_id)
        return self._messages(rows)

    def _messages(self, rows: Sequence[sqlite3.Row]) -> list[Message]:
        texts = read_texts(self._database, (row["attachments"] for row in rows))
        return [to_message(row, texts) for row in rows]

    def check_integrity(self) -> None:
        """Raises StoreError unless every head and parent is a message of its own conversation, words are indexed, and
        every document is there and used.
        """
        problems = [
            *documents_problems(self._database),
            *self._database.read("PRAGMA foreign_key_check"),
            *self._database.read(
                "SELECT c.id FROM conversations c LEFT JOIN messages m ON m.id = c.head_id"
                " WHERE c.head_id IS NOT NULL AND m.conversation_id IS NOT c.id"
            ),
            *self._database.read(
                "SELECT m.id FROM messages m LEFT JOIN messages parent ON parent.id = m.parent_id"
                " WHERE m.parent_id IS NOT NULL AND parent.conversation_id IS NOT m.conversation_id"
            ),
            *(row for row in self._database.read("PRAGMA integrity_check") if row[0] != "ok"),
        ]
        if problems:
            raise StoreError(
                f"The conversations are inconsistent in {len(problems)} places; export them and start anew."
            )
        with self._database.transaction() as connection:
            connection.execute("INSERT INTO message_words(message_words, rank) VALUES ('integrity-check', 1)")

    def close(self) -> None:
        self._database.close()


def copies(branch: Sequence[Message], conversation_id: str) -> list[Message]:
    """The messages under new ids in another conversation, each the parent of the next."""
    copied: list[Message] = []
    for message in branch:
        parent_id = copied[-1].id if copied else None
        copied.append(replace(message, id=new_id(), parent_id=parent_id, conversation_id=conversation_id))
    return copied


def _append(connection: sqlite3.Connection, conversation_id: str, messages: Sequence[Message]) -> None:
    if not connection.execute("SELECT 1 FROM conversations WHERE id = ?", (conversation_id,)).fetchone():
        raise MissingConversationError(_MISSING)
    connection.executemany(
        f"INSERT INTO messages({', '.join(MESSAGE_COLUMNS)}) VALUES ({', '.join('?' * len(MESSAGE_COLUMNS))})"
        " ON CONFLICT(id) DO NOTHING",
        [to_row(message) for message in messages],
    )
    write_documents(connection, messages)
    if messages:
        connection.execute(
            "UPDATE conversations SET head_id = ?, updated_at = ?, deleted_at = NULL WHERE id = ?",
            (messages[-1].id, messages[-1].created_at, conversation_id),
        )


def _purge(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM conversations WHERE deleted_at < ?", (time.time() - KEPT_DELETED_S,))


def _search_words(query: str) -> str:
    """An FTS5 expression that takes the user's words literally, the last one as a beginning."""
    words = [word.replace('"', '""') for word in query.replace("\0", " ").split()]
    return " ".join(f'"{word}"' for word in words) + "*" if words else ""


def _unmarked(excerpt: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The excerpt without its marks, and the places they were around."""
    text, matches = "", []
    for piece in excerpt.split(_MARK_START):
        word, mark, rest = piece.partition(_MARK_END)
        if mark:
            matches.append((len(text), len(text) + len(word)))
        text += word + rest
    return text, tuple(matches)
