"""The store keeps what it was given, all of it or nothing, also beside other instances and on a full disk."""

import sqlite3
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import StoreError
from app.messages import Attachment, MalformedCall, Message
from app.store.conversations import MissingConversationError, Store
from app.store.database import Database
from app.store.migrations import MIGRATIONS
from runtime.protocol import ToolCall
from tests.support.privileges import as_ordinary_user


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "deep" / "hotslot.db")


def add(store: Store, conversation_id: str, parent: Message | None, text: str, role: str = "user") -> Message:
    message = Message(conversation_id, parent.id if parent else None, role, text)  # type: ignore[arg-type]
    store.append_message(message)
    return message


def test_message_comes_back_as_it_was(store: Store) -> None:
    conversation = store.create_conversation("demo", "title")
    message = Message(
        conversation.id,
        None,
        "assistant",
        "text with 'quotes', \"these\" and 🙂",
        reasoning="because",
        tool_calls=(ToolCall("clock", {"zone": "UTC", "deep": [1, {"x": None}]}),),
        attachments=(Attachment("a.txt", "inside"),),
        generated_ids=(0, 1, 2**31),
        tokenizer_fingerprint="abc",
        status="length",
        model_name="demo-model",
        malformed_calls=(MalformedCall("<tool_call>{", "not JSON"),),
        tool_name="clock",
        tool_status="denied",
    )
    store.append_message(message)
    assert store.branch(message.id) == [message]
    assert store.conversation(conversation.id).head_id == message.id


def test_branch_is_path_from_root(store: Store) -> None:
    conversation = store.create_conversation("demo")
    first = add(store, conversation.id, None, "one")
    left = add(store, conversation.id, first, "left", "assistant")
    right = add(store, conversation.id, first, "right", "assistant")
    assert [m.content for m in store.branch(left.id)] == ["one", "left"]
    assert [m.content for m in store.branch(right.id)] == ["one", "right"]
    assert {m.content for m in store.leaves(conversation.id)} == {"left", "right"}
    assert store.branch(None) == []


def test_long_branch(store: Store) -> None:
    conversation = store.create_conversation("demo")
    parent = None
    for i in range(1500):
        parent = add(store, conversation.id, parent, str(i))
    assert parent is not None
    assert [m.content for m in store.branch(parent.id)] == [str(i) for i in range(1500)]


def test_appending_twice_changes_nothing(store: Store) -> None:
    conversation = store.create_conversation("demo")
    message = add(store, conversation.id, None, "one")
    store.append_message(replace(message, content="other"))
    assert [m.content for m in store.branch(message.id)] == ["one"]


def test_delete_removes_messages_and_words(store: Store) -> None:
    conversation = store.create_conversation("demo", "keep me not")
    add(store, conversation.id, add(store, conversation.id, None, "aardvark"), "zebra", "assistant")
    store.delete(conversation.id)
    assert store.list_conversations() == []
    assert store.search("aardvark") == []
    with pytest.raises(MissingConversationError, match="choose another"):
        store.conversation(conversation.id)


@pytest.mark.parametrize(
    "query", ['"', "*", "NEAR(", "a OR", "col:x", "(", "'; DROP TABLE messages; --", "\0", "^", "-x"]
)
def test_search_takes_any_query_literally(store: Store, query: str) -> None:
    conversation = store.create_conversation("demo", "title")
    add(store, conversation.id, None, "hello world")
    store.search(query)
    store.list_conversations(query=query)
    assert [hit.excerpt for hit in store.search("wor")] == ["hello world"]


def test_list_is_newest_first_and_searchable(store: Store) -> None:
    ids = []
    for i, text in enumerate(["the red fox", "a blue whale", "red and blue"]):
        conversation = store.create_conversation("demo", f"chat {i}")
        ids.append(conversation.id)
        store.append_message(replace(Message(conversation.id, None, "user", text), created_at=1000.0 + i))
    store.create_conversation("demo", "nothing said")
    assert [c.id for c in store.list_conversations()] == ids[::-1]
    assert [c.id for c in store.list_conversations(limit=1)] == [ids[2]]
    assert [c.id for c in store.list_conversations(query="red")] == [ids[2], ids[0]]
    assert [c.id for c in store.list_conversations(query="red blue")] == [ids[2]]
    assert [c.id for c in store.list_conversations(query="CHAT 1")] == [ids[1]]


def test_message_of_unknown_conversation_is_refused(store: Store) -> None:
    with pytest.raises(MissingConversationError):
        add(store, "no such", None, "x")


def test_two_instances_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    stores = [Store.open(path) for _ in range(2)]
    conversation = stores[0].create_conversation("demo")
    root = add(stores[0], conversation.id, None, "root")
    failures: list[BaseException] = []

    def write(store: Store, name: str) -> None:
        try:
            parent = root
            for i in range(60):
                parent = add(store, conversation.id, parent, f"{name}{i}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(s, n)) for s, n in zip(stores, "ab", strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    leaves = stores[1].leaves(conversation.id)
    assert {m.content for m in leaves} == {"a59", "b59"}
    assert all(len(stores[0].branch(leaf.id)) == 61 for leaf in leaves)


def test_many_instances_may_create_the_database_at_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def create() -> None:
        try:
            Store.open(tmp_path / "new.db").create_conversation("demo")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


KILLED_WRITER = """
import os, sys
from pathlib import Path
from app.messages import Message
from app.store.conversations import Store
store = Store.open(Path(sys.argv[1]))
conversation = store.create_conversation("demo")
parent = None
for i in range(10**6):
    message = Message(conversation.id, parent, "user", f"{i} " + "x" * 20000)
    store.append_message(message)
    parent = message.id
    print(i, flush=True)
"""


def test_killed_writer_leaves_whole_messages(tmp_path: Path) -> None:
    path = tmp_path / "killed.db"
    writer = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(20)]
    writer.kill()
    writer.communicate()
    store = Store.open(path)
    [conversation] = store.list_conversations()
    messages = store.branch(conversation.head_id)
    assert len(messages) >= len(said)
    assert all(m.content == f"{i} " + "x" * 20000 for i, m in enumerate(messages))
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def limit_size(store: Store, num_pages: int) -> None:
    """What a full disk does to SQLite, without one."""
    store._database.read(f"PRAGMA max_page_count = {num_pages}")


def test_full_disk_is_one_line_and_harms_nothing(store: Store) -> None:
    conversation = store.create_conversation("demo")
    first = add(store, conversation.id, None, "small")
    limit_size(store, 40)
    with pytest.raises(StoreError, match=r"full.*free some space") as caught:
        add(store, conversation.id, first, "x" * 10**6)
    assert "\n" not in str(caught.value)
    assert store.conversation(conversation.id).head_id == first.id
    limit_size(store, 10**6)
    add(store, conversation.id, first, "fits again")


@pytest.mark.parametrize("content", [b"\0" * 4096, b"not a database at all" * 200])
def test_damaged_database_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"bad\.db are damaged.*move the file away"):
        Store.open(path)
    store, notice = Store.open_or_in_memory(path)
    assert store.is_in_memory
    assert notice is not None
    assert "not saved" in notice
    assert path.read_bytes() == content


def test_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(StoreError, match="set HOTSLOT_HOME"):
        Store.open(tmp_path / "home" / "hotslot.db")


def test_read_only_home_is_named_and_chats_stay_in_memory() -> None:
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o555)
        with as_ordinary_user():
            store, notice = Store.open_or_in_memory(Path(home) / "hotslot.db")
        assert store.is_in_memory
        assert notice is not None
        assert "make it writable or set HOTSLOT_HOME" in notice
        conversation = store.create_conversation("demo")
        assert store.branch(add(store, conversation.id, None, "still works").id)


def test_every_older_database_is_brought_up_to_date(tmp_path: Path) -> None:
    for num_steps in range(len(MIGRATIONS)):
        path = tmp_path / f"version{num_steps}.db"
        old = Database.open(path, MIGRATIONS[:num_steps])
        if num_steps:
            with old.transaction() as connection:
                connection.execute(
                    "INSERT INTO conversations(id, title, model, created_at, updated_at)"
                    " VALUES ('c', 'old', 'demo', 1, 1)"
                )
                connection.execute(
                    "INSERT INTO messages(row_id, id, conversation_id, role, content, reasoning, tool_calls,"
                    " attachments, generated_ids, tokenizer_fingerprint, status, created_at, model_name)"
                    " VALUES (1, 'm', 'c', 'user', 'ancient words', '', '[]', '[]', x'', '', 'complete', 1, '')"
                )
                connection.execute("UPDATE conversations SET head_id = 'm'")
        old.close()
        store = Store.open(path)
        if num_steps:
            assert [hit.message_id for hit in store.search("ancient")] == ["m"]
            assert [m.content for m in store.branch("m")] == ["ancient words"]
        assert store.create_conversation("demo").model == "demo"


def test_migrations_have_names_of_their_own() -> None:
    names = [migration.name for migration in MIGRATIONS]
    assert len(set(names)) == len(names)
    assert names[:2] == ["conversations-and-messages", "full-text-search"]


def test_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    Store.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(StoreError, match="newer Hotslot; update"):
        Store.open(path)


def test_failing_migration_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "half.db"
    broken = replace(MIGRATIONS[1], name="broken", statements=("CREATE TABLE half (x)", "CREATE TABLE half (x)"))
    with pytest.raises(StoreError):
        Database.open(path, (MIGRATIONS[0], broken))
    assert Database.open(path, MIGRATIONS).read("SELECT name FROM sqlite_master WHERE name = 'half'") == []


def test_busy_database_is_named_after_the_timeout(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect(store._database.name, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store._database.read("PRAGMA busy_timeout = 50")
    with pytest.raises(StoreError, match="Another program holds"):
        store.create_conversation("demo")
    other.execute("ROLLBACK")
    store.create_conversation("demo")
