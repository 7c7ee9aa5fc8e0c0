"""The list of conversations: pins, search with its marks, titles of models, deletion that can be undone for a while."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.messages import Conversation, Message
from app.store import conversations
from app.store.conversations import KEPT_DELETED_S, MissingConversationError, SearchHit, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "hotslot.db")


def add_chat(store: Store, title: str, *texts: str, at_s: float = 1000.0) -> Conversation:
    """A conversation of one branch."""
    conversation = store.create_conversation("demo", title)
    parent_id = None
    for number, text in enumerate(texts or ("hello",)):
        role = "assistant" if number % 2 else "user"
        message = Message(conversation.id, parent_id, role, text, created_at=at_s + number)  # type: ignore[arg-type]
        store.append_message(message)
        parent_id = message.id
    return store.conversation(conversation.id)


def titles(store: Store, query: str = "") -> list[str]:
    return [conversation.title for conversation in store.list_conversations(query=query)]


def test_pinned_ones_come_first(store: Store) -> None:
    chats = [add_chat(store, title, at_s=at_s) for title, at_s in (("old", 1.0), ("middle", 2.0), ("new", 3.0))]
    store.pin(chats[0].id)
    assert titles(store) == ["old", "new", "middle"]
    assert titles(store, "hello") == ["old", "new", "middle"]
    store.pin(chats[1].id)
    assert titles(store) == ["middle", "old", "new"]
    store.unpin(chats[0].id)
    store.unpin(chats[0].id)
    assert titles(store) == ["middle", "new", "old"]
    with pytest.raises(MissingConversationError):
        store.pin("no such")


def test_search_says_where_the_words_are(store: Store) -> None:
    chat = add_chat(store, "Animals", "The Fox, " + "and so on " * 40 + "met another fox and a hen.", "Foxes sleep.")
    add_chat(store, "Others", "Nothing of this kind.")
    hits = store.search("hen fox")
    assert [(hit.conversation_id, hit.title) for hit in hits] == [(chat.id, "Animals")]
    [hit] = hits
    assert [hit.excerpt[start:end] for start, end in hit.matches] == ["fox", "hen"]
    assert hit.excerpt.startswith("…")
    [hit] = store.search("Foxes")
    assert (hit.excerpt, hit.matches) == ("Foxes sleep.", ((0, 5),))


def test_marks_of_a_hostile_text_break_nothing(store: Store) -> None:
    add_chat(store, "x", "\x03a \x02fox\x02 b\x03\x03")
    [hit] = store.search("fox")
    assert isinstance(hit, SearchHit)
    assert all(0 <= start <= end <= len(hit.excerpt) for start, end in hit.matches)


def test_a_model_names_only_what_nobody_has_named(store: Store) -> None:
    chat = add_chat(store, "first words")
    assert not store.suggest_title(chat.id, "By a model")
    store.write_conversation(replace(chat, id="words", title_source="words"), [])
    assert store.suggest_title("words", "By a model")
    assert store.conversation("words").title_source == "model"
    assert not store.suggest_title("words", "By another")
    store.rename("words", "By me")
    assert not store.suggest_title("words", "By another")
    assert store.conversation("words").title == "By me"
    assert not store.suggest_title("no such", "x")


def test_undo_brings_back_all_of_it(store: Store) -> None:
    chat = add_chat(store, "Mine", "one", "two")
    root = store.branch(chat.head_id)[0]
    store.append_message(Message(chat.id, root.id, "assistant", "another two"))
    store.set_head(chat.id, chat.head_id)
    store.pin(chat.id)
    before = (store.conversation(chat.id), store.messages(chat.id), store.search("two"))
    store.delete(chat.id)
    assert (titles(store), store.search("two"), [c.id for c in store.list_deleted()]) == ([], [], [chat.id])
    store.undelete(chat.id)
    assert (store.conversation(chat.id), store.messages(chat.id), store.search("two")) == before
    assert store.list_deleted() == []


def test_what_was_deleted_long_ago_is_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = add_chat(store, "old"), add_chat(store, "new")
    store.delete(old.id)
    later_s = conversations.time.time() + KEPT_DELETED_S + 60
    monkeypatch.setattr(conversations.time, "time", lambda: later_s)
    store.delete(new.id)
    assert [c.id for c in store.list_deleted()] == [new.id]
    with pytest.raises(MissingConversationError):
        store.undelete(old.id)
    assert store.messages(old.id) == []
    store.check_integrity()


def test_saying_something_brings_a_deleted_one_back(store: Store) -> None:
    chat = add_chat(store, "Mine", "one")
    store.delete(chat.id)
    store.append_message(Message(chat.id, chat.head_id, "assistant", "late answer"))
    assert [m.content for m in store.branch(store.conversation(chat.id).head_id)] == ["one", "late answer"]


def test_a_fork_is_whole_and_its_own(store: Store) -> None:
    chat = add_chat(store, "Mine", "one", "two", "three")
    second = store.branch(chat.head_id)[1]
    store.pin(chat.id)
    forked = store.fork(second.id)
    assert (forked.title, forked.pinned_at, forked.model) == ("Mine (fork)", None, "demo")
    assert [(m.role, m.content) for m in store.branch(forked.head_id)] == [("user", "one"), ("assistant", "two")]
    store.delete(chat.id)
    assert [m.content for m in store.messages(forked.id)] == ["one", "two"]
    with pytest.raises(MissingConversationError):
        store.fork("no such")
    store.check_integrity()


def test_changes_of_two_instances_do_not_undo_each_other(tmp_path: Path) -> None:
    stores = [Store.open(tmp_path / "shared.db") for _ in range(2)]
    chat = add_chat(stores[0], "Mine", "one")
    failures: list[BaseException] = []

    def work(store: Store, number: int) -> None:
        try:
            for step in range(40):
                forked = store.fork(chat.head_id or "")
                store.rename(forked.id, f"{number} {step}")
                store.pin(forked.id)
                store.delete(forked.id)
                store.undelete(forked.id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(store, number)) for number, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    listed = stores[0].list_conversations(1000)
    assert {c.title for c in listed if c.pinned_at} == {f"{n} {s}" for n in range(2) for s in range(40)}
    stores[0].check_integrity()
