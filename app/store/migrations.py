"""The database's schema as named steps. Append only: a released step never changes, `user_version` counts them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Migration:
    """One step, run in one transaction; statements are separate because a script would commit by itself."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "conversations-and-messages",
        (
            """CREATE TABLE conversations (
                id TEXT PRIMARY KEY NOT NULL,
                title TEXT NOT NULL,
                model TEXT NOT NULL,
                created_at REAL NOT NULL,
                updated_at REAL NOT NULL,
                head_id TEXT REFERENCES messages(id) ON DELETE SET NULL
            )""",
            """CREATE TABLE messages (
                row_id INTEGER PRIMARY KEY,
                id TEXT UNIQUE NOT NULL,
                conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
                parent_id TEXT REFERENCES messages(id),
                role TEXT NOT NULL,
                content TEXT NOT NULL,
                reasoning TEXT NOT NULL,
                tool_calls TEXT NOT NULL,
                attachments TEXT NOT NULL,
                generated_ids BLOB NOT NULL,
                tokenizer_fingerprint TEXT NOT NULL,
                status TEXT NOT NULL,
                created_at REAL NOT NULL,
                model_name TEXT NOT NULL
            )""",
            "CREATE INDEX messages_by_conversation ON messages(conversation_id, created_at)",
            "CREATE INDEX messages_by_parent ON messages(parent_id)",
            "CREATE INDEX conversations_by_time ON conversations(updated_at)",
        ),
    ),
    Migration(
        "full-text-search",
        (
            "CREATE VIRTUAL TABLE message_words USING fts5(content, content='messages', content_rowid='row_id')",
            """CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
                INSERT INTO message_words(rowid, content) VALUES (new.row_id, new.content);
            END""",
            """CREATE TRIGGER message_removed AFTER DELETE ON messages BEGIN
                INSERT INTO message_words(message_words, rowid, content) VALUES ('delete', old.row_id, old.content);
            END""",
            """CREATE TRIGGER message_changed AFTER UPDATE OF content ON messages BEGIN
                INSERT INTO message_words(message_words, rowid, content) VALUES ('delete', old.row_id, old.content);
                INSERT INTO message_words(rowid, content) VALUES (new.row_id, new.content);
            END""",
            "INSERT INTO message_words(message_words) VALUES ('rebuild')",
        ),
    ),
    Migration(
        "tool-results-and-permissions",
        (
            "ALTER TABLE messages ADD COLUMN malformed_calls TEXT NOT NULL DEFAULT '[]'",
            "ALTER TABLE messages ADD COLUMN tool_name TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE messages ADD COLUMN tool_status TEXT NOT NULL DEFAULT ''",
            """CREATE TABLE tool_permissions (
                permission TEXT NOT NULL,
                folder TEXT NOT NULL,
                decision TEXT NOT NULL CHECK (decision IN ('allow', 'deny')),
                decided_at REAL NOT NULL,
                PRIMARY KEY (permission, folder)
            )""",
        ),
    ),
    Migration(
        "pins-undo-and-title-sources",
        (
            "ALTER TABLE conversations ADD COLUMN pinned_at REAL",
            "ALTER TABLE conversations ADD COLUMN deleted_at REAL",
            # Which older titles the user chose is not known: none of them is replaced.
            "ALTER TABLE conversations ADD COLUMN title_source TEXT NOT NULL DEFAULT 'user'",
        ),
    ),
    Migration(
        "documents",
        (
            "CREATE TABLE documents (id TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL) WITHOUT ROWID",
            """CREATE TABLE message_documents (
                message_id TEXT NOT NULL REFERENCES messages(id) ON DELETE CASCADE,
                document_id TEXT NOT NULL REFERENCES documents(id),
                PRIMARY KEY (message_id, document_id)
            ) WITHOUT ROWID""",
            "CREATE INDEX message_documents_by_document ON message_documents(document_id)",
            """CREATE TRIGGER document_unused AFTER DELETE ON message_documents BEGIN
                DELETE FROM documents WHERE id = old.document_id
                AND NOT EXISTS (SELECT 1 FROM message_documents WHERE document_id = old.document_id);
            END""",
        ),
    ),
    Migration("full-tool-results", ("ALTER TABLE messages ADD COLUMN full_result TEXT NOT NULL DEFAULT ''",)),
)
