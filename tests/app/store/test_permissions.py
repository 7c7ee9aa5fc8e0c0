"""Remembered decisions: kept over a restart, replaced, revoked; a database of the first release gets the table."""

from pathlib import Path

from app.store.conversations import Store
from app.store.database import Database
from app.store.migrations import MIGRATIONS


def rows(store: Store) -> list[tuple[str, str, str]]:
    return [(row.permission, row.folder, row.decision) for row in store.permissions.all()]


def test_decisions_last_and_can_be_revoked(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "hotslot.db")
    store.permissions.remember("read_file", "/home/x", "allow")
    store.permissions.remember("read_file", "", "deny")
    store.permissions.remember("read_file", "/home/x", "deny")
    store.close()
    again = Store.open(tmp_path / "hotslot.db")
    assert rows(again) == [("read_file", "", "deny"), ("read_file", "/home/x", "deny")]
    again.permissions.revoke("read_file", "/home/x")
    again.permissions.revoke("never", "decided")
    assert rows(again) == [("read_file", "", "deny")]


def test_database_of_the_first_release_gets_tools(tmp_path: Path) -> None:
    path = tmp_path / "hotslot.db"
    old = Database.open(path, MIGRATIONS[:2])
    with old.transaction() as connection:
        connection.execute(
            "INSERT INTO conversations(id, title, model, created_at, updated_at) VALUES ('c', 't', 'demo', 1, 1)"
        )
        connection.execute(
            "INSERT INTO messages(id, conversation_id, role, content, reasoning, tool_calls, attachments,"
            " generated_ids, tokenizer_fingerprint, status, created_at, model_name)"
            " VALUES ('m', 'c', 'user', 'hi', '', '[]', '[]', x'', '', 'complete', 1, '')"
        )
    old.close()
    store = Store.open(path)
    (message,) = store.branch("m")
    assert (message.content, message.malformed_calls, message.tool_name, message.tool_status) == ("hi", (), "", "")
    store.permissions.remember("clock", "", "allow")
    assert rows(store) == [("clock", "", "allow")]
