"""A document is stored once however often it is shown, comes back whole, and leaves with its last message."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import StoreError
from app.messages import Attachment, Message, Reading
from app.store import conversations
from app.store.conversations import Store
from app.store.database import Database
from app.store.migrations import MIGRATIONS

TEXT = "One.\ue00cTwo — ☕.\n"


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.open(tmp_path / "hotslot.db")


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database, is_in_memory=False)


def show(store: Store, *attachments: Attachment) -> Message:
    conversation = store.create_conversation("demo")
    message = Message(conversation.id, None, "user", "?", attachments=attachments)
    store.append_message(message)
    return message


def num_documents(database: Database) -> int:
    return int(database.read("SELECT count(*) FROM documents")[0][0])


def test_one_text_is_stored_once(store: Store, database: Database) -> None:
    reading = Reading("passages", ((0, 2), (5, 6)), is_follow_up=True)
    shown = [
        show(store, Attachment("a.pdf", TEXT, "pages"), Attachment("b.py", TEXT, "code")),
        show(store, Attachment("a.pdf", TEXT, "pages", reading)),
        show(store, Attachment("a.pdf", TEXT, "pages", Reading("all", notes="- a"))),
    ]
    assert num_documents(database) == 1
    for message in shown:
        assert store.branch(message.id) == [message]
    assert store.messages(shown[0].conversation_id) == [shown[0]]
    store.check_integrity()


def test_a_fork_shares_the_document(store: Store, database: Database) -> None:
    message = show(store, Attachment("a", TEXT))
    forked = store.fork(message.id)
    assert store.branch(forked.head_id)[0].attachments == message.attachments
    assert num_documents(database) == 1
    store.check_integrity()


def test_documents_leave_with_their_last_message(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = show(store, Attachment("a", TEXT), Attachment("b", "other")), show(store, Attachment("a", TEXT))
    monkeypatch.setattr(conversations, "KEPT_DELETED_S", -1.0)
    store.delete(first.conversation_id)

    assert [row["text"] for row in database.read("SELECT text FROM documents")] == [TEXT]
    store.check_integrity()
    store.delete(second.conversation_id)
    assert num_documents(database) == 0
    store.check_integrity()


def test_reading_is_noted_later(store: Store) -> None:
    message = show(store, Attachment("a", TEXT))
    noted = replace(message, attachments=(Attachment("a", TEXT, reading=Reading("whole")), Attachment("b", "more")))
    store.set_attachments(noted)
    assert store.branch(message.id) == [noted]
    store.check_integrity()


def test_rows_of_the_first_release_hold_their_text(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = Database.open(path, MIGRATIONS[:2])
    with old.transaction() as connection:
        connection.execute("INSERT INTO conversations VALUES ('c', '', 'demo', ?, ?, NULL)", (time.time(), time.time()))
        connection.execute(
            "INSERT INTO messages(id, conversation_id, role, content, reasoning, tool_calls, attachments,"
            " generated_ids, tokenizer_fingerprint, status, created_at, model_name)"
            " VALUES ('m', 'c', 'user', '?', '', '[]', ?, x'', '', 'complete', 0, '')",
            (json.dumps([{"name": "a.txt", "text": TEXT}]),),
        )
    old.close()
    store = Store.open(path)
    [message] = store.branch("m")
    assert message.attachments == (Attachment("a.txt", TEXT),)
    store.fork("m")
    store.check_integrity()


def test_a_missing_text_is_named(store: Store, database: Database) -> None:
    message = show(store, Attachment("report.pdf", TEXT))
    with database.transaction() as connection:
        connection.execute("DELETE FROM message_documents")
    with pytest.raises(StoreError, match=r"report\.pdf is missing .*; attach it again"):
        store.branch(message.id)
    with pytest.raises(StoreError, match="inconsistent"):
        store.check_integrity()
