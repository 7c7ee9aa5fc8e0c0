"""A database as the first release made it, written down here word for word: it opens, and all of it works on."""

import sqlite3
from pathlib import Path

import pytest

from app.messages import Attachment
from app.store.conversations import Store
from runtime.protocol import ToolCall

FIRST_RELEASE = """
CREATE TABLE conversations (
    id TEXT PRIMARY KEY NOT NULL, title TEXT NOT NULL, model TEXT NOT NULL, created_at REAL NOT NULL,
    updated_at REAL NOT NULL, head_id TEXT REFERENCES messages(id) ON DELETE SET NULL
);
CREATE TABLE messages (
    row_id INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL,
    conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
    parent_id TEXT REFERENCES messages(id), role TEXT NOT NULL, content TEXT NOT NULL, reasoning TEXT NOT NULL,
    tool_calls TEXT NOT NULL, attachments TEXT NOT NULL, generated_ids BLOB NOT NULL,
    tokenizer_fingerprint TEXT NOT NULL, status TEXT NOT NULL, created_at REAL NOT NULL, model_name TEXT NOT NULL
);
CREATE INDEX messages_by_conversation ON messages(conversation_id, created_at);
CREATE INDEX messages_by_parent ON messages(parent_id);
CREATE INDEX conversations_by_time ON conversations(updated_at);
CREATE VIRTUAL TABLE message_words USING fts5(content, content='messages', content_rowid='row_id');
CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
    INSERT INTO message_words(rowid, content) VALUES (new.row_id, new.content);
END;
CREATE TRIGGER message_removed AFTER DELETE ON messages BEGIN
    INSERT INTO message_words(message_words, rowid, content) VALUES ('delete', old.row_id, old.content);
END;
CREATE TRIGGER message_changed AFTER UPDATE OF content ON messages BEGIN
    INSERT INTO message_words(message_words, rowid, content) VALUES ('delete', old.row_id, old.content);
    INSERT INTO message_words(rowid, content) VALUES (new.row_id, new.content);
END;
INSERT INTO conversations VALUES ('c', 'Old chat', 'demo', 1.5, 3.5, NULL);
INSERT INTO messages VALUES
    (1, 'u', 'c', NULL, 'user', 'ancient words', '', '[]', '[{"name": "a.txt", "text": "inside"}]', x'', '',
     'complete', 2.5, ''),
    (2, 'a', 'c', 'u', 'assistant', 'old answer', 'because', '[{"name": "clock", "arguments": {"zone": "UTC"}}]', '[]',
     x'0100000002000000', 'abc', 'length', 3.0, 'demo-model'),
    (3, 'b', 'c', 'u', 'assistant', 'other answer', '', '[]', '[]', x'', '', 'cancelled', 3.5, 'demo-model');
UPDATE conversations SET head_id = 'a';
PRAGMA user_version = 2;
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    path = tmp_path / "hotslot.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(FIRST_RELEASE)
    connection.close()
    return Store.open(path)


def test_everything_is_still_there(store: Store) -> None:
    [conversation] = store.list_conversations()
    assert (conversation.title, conversation.model, conversation.head_id) == ("Old chat", "demo", "a")
    assert (conversation.created_at, conversation.updated_at, conversation.pinned_at) == (1.5, 3.5, None)
    user, answer = store.branch("a")
    assert user.attachments == (Attachment("a.txt", "inside"),)
    assert (answer.content, answer.reasoning, answer.status) == ("old answer", "because", "length")
    assert answer.tool_calls == (ToolCall("clock", {"zone": "UTC"}),)
    assert (answer.generated_ids, answer.tokenizer_fingerprint) == ((1, 2), "abc")
    assert {leaf.id for leaf in store.leaves("c")} == {"a", "b"}
    assert [hit.message_id for hit in store.search("ancient")] == ["u"]
    store.check_integrity()


def test_what_is_new_works_on_it(store: Store) -> None:
    assert not store.suggest_title("c", "A model's idea")
    store.pin("c")
    forked = store.fork("b")
    store.delete("c")
    assert [c.id for c in store.list_conversations()] == [forked.id]
    store.undelete("c")
    assert [c.id for c in store.list_conversations()] == ["c", forked.id]
    assert store.conversation("c").title == "Old chat"
    store.check_integrity()
