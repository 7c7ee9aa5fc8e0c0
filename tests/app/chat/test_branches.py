"""Edits, answers anew, siblings and forks: whatever is done in whatever order, every branch stays as it was said."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.events import TurnEvent
from app.chat.message_tree import MessageTree
from app.chat.session import ChatSession
from app.errors import StoreError
from app.messages import Attachment, Message
from app.settings import Settings
from app.store.conversations import MessageLink, Store
from runtime.errors import RequestError
from tests.support.scripted_engine import Crash, Say, ScriptedEngine

MODEL = Path("/models/scripted")


async def run(events: AsyncIterator[TurnEvent]) -> None:
    async for _ in events:
        pass


def texts(session: ChatSession) -> list[str]:
    return [message.content for message in session.messages]


# ---- any order of operations against a plain model of trees


@dataclass
class Node:
    text: str
    role: str
    parent: "Node | None"
    children: "list[Node]" = field(default_factory=list)

    def path(self) -> "list[Node]":
        return [*(self.parent.path() if self.parent else []), self]


@dataclass
class Tree:
    """What a conversation should be. `order` is the order in which its messages were said."""

    title: str
    roots: list[Node] = field(default_factory=list)
    order: list[Node] = field(default_factory=list)
    head: Node | None = None
    is_pinned: bool = False

    def say(self, text: str, role: str, parent: Node | None) -> Node:
        node = Node(text, role, parent)
        (self.roots if parent is None else parent.children).append(node)
        self.order.append(node)
        self.head = node
        return node

    def path(self) -> list[Node]:
        return self.head.path() if self.head else []

    def newest_leaf(self, node: Node) -> Node:
        return [said for said in self.order if node in said.path()][-1]


class Driver:
    """Does the same to a session and to the model, and compares them."""

    def __init__(self) -> None:
        self.store = Store.in_memory()
        self.engine = ScriptedEngine()
        self.session = ChatSession(self.engine, self.store, Settings(), MODEL)
        self.trees: dict[str, Tree] = {}
        self.deleted: list[str] = []
        self.tree: Tree | None = None
        self.num_said = 0

    def new_text(self) -> str:
        self.num_said += 1
        return f"text {self.num_said}"

    async def turn(self, events: AsyncIterator[TurnEvent], parent: Node | None, asked: str | None) -> None:
        """`asked` None: the parent is answered anew."""
        answer = self.new_text()
        self.engine.scripts = [(Say(answer),)]
        await run(events)
        assert self.session.conversation is not None
        if self.tree is None:
            self.tree = self.trees[self.session.conversation.id] = Tree(self.session.conversation.title)
        if asked is not None:
            parent = self.tree.say(asked, "user", parent)
        self.tree.say(answer, "assistant", parent)

    async def send(self, _: int) -> None:
        text = self.new_text()
        await self.turn(self.session.send(text), self.tree.head if self.tree else None, text)

    async def edit(self, pick: int) -> None:
        users = [i for i, message in enumerate(self.session.messages) if message.role == "user"]
        if self.tree is not None and users:
            place = users[pick % len(users)]
            text = self.new_text()
            events = self.session.edit(self.session.messages[place].id, text)
            await self.turn(events, self.tree.path()[place].parent, text)

    async def regenerate(self, pick: int) -> None:
        if self.tree is not None and self.session.messages:
            place = pick % len(self.session.messages)
            message = self.session.messages[place]
            node = self.tree.path()[place]
            await self.turn(self.session.regenerate(message.id), node if node.role == "user" else node.parent, None)

    async def fail_to_regenerate(self, _: int) -> None:
        if self.tree is not None:
            self.engine.scripts = [(Crash(),)]
            await run(self.session.regenerate())

    async def show_sibling(self, pick: int) -> None:
        if self.tree is not None and self.session.messages:
            place = pick % len(self.session.messages)
            node = self.tree.path()[place]
            siblings = node.parent.children if node.parent else self.tree.roots
            wanted = (pick // 7) % len(siblings)
            ids = self.session.siblings(self.session.messages[place].id)
            assert len(ids) == len(siblings)
            await self.session.show_sibling(ids[wanted])
            self.tree.head = self.tree.newest_leaf(siblings[wanted])

    async def fork(self, pick: int) -> None:
        if self.tree is not None and self.session.messages:
            place = pick % len(self.session.messages)
            await self.session.fork(self.session.messages[place].id)
            assert self.session.conversation is not None
            forked = Tree(f"{self.tree.title} (fork)")
            for node in self.tree.path()[: place + 1]:
                forked.say(node.text, node.role, forked.head)
            self.tree = self.trees[self.session.conversation.id] = forked

    async def open(self, pick: int) -> None:
        if self.trees:
            conversation_id = sorted(self.trees)[pick % len(self.trees)]
            await self.session.open(conversation_id)
            self.tree = self.trees[conversation_id]

    async def new(self, _: int) -> None:
        self.session.new()
        self.tree = None

    async def rename(self, pick: int) -> None:
        if self.tree is not None:
            await self.session.rename(f"title {pick}")
            self.tree.title = f"title {pick}"

    async def pin(self, pick: int) -> None:
        if self.tree is not None and self.session.conversation is not None:
            change = self.store.unpin if self.tree.is_pinned else self.store.pin
            change(self.session.conversation.id)
            self.tree.is_pinned = not self.tree.is_pinned

    async def delete(self, pick: int) -> None:
        """Of another conversation than the open one, or of that; undone later, or never."""
        if self.trees:
            conversation_id = sorted(self.trees)[pick % len(self.trees)]
            self.store.delete(conversation_id)
            self.deleted.append(conversation_id)
            if self.trees[conversation_id] is self.tree:
                await self.new(0)
            self.check_deleted(conversation_id)
            if pick % 2:
                self.store.undelete(conversation_id)
                self.deleted.remove(conversation_id)

    def check_deleted(self, conversation_id: str) -> None:
        assert conversation_id not in {c.id for c in self.store.list_conversations(1000)}
        assert conversation_id not in {hit.conversation_id for hit in self.store.search("text", 1000)}
        with pytest.raises(StoreError):
            self.store.conversation(conversation_id)

    async def undelete_all(self) -> None:
        for conversation_id in self.deleted:
            self.store.undelete(conversation_id)
        self.deleted.clear()

    def check_open(self) -> None:
        shown = [(node.text, node.role) for node in self.tree.path()] if self.tree else []
        assert [(message.content, message.role) for message in self.session.messages] == shown

    def check_all(self) -> None:
        listed = self.store.list_conversations(1000)
        assert {c.id for c in listed} == self.trees.keys()
        pins = [c.pinned_at is not None for c in listed]
        assert pins == sorted(pins, reverse=True)
        for conversation in listed:
            tree = self.trees[conversation.id]
            said = {message.id: message for message in self.store.messages(conversation.id)}
            places = {message_id: place for place, message_id in enumerate(said)}
            assert [
                (m.content, m.role, None if m.parent_id is None else places[m.parent_id]) for m in said.values()
            ] == [(n.text, n.role, None if n.parent is None else tree.order.index(n.parent)) for n in tree.order]
            branch = self.store.branch(conversation.head_id)
            assert [message.content for message in branch] == [node.text for node in tree.path()]
            assert (conversation.title, conversation.pinned_at is not None) == (tree.title, tree.is_pinned)
        self.store.check_integrity()


OPERATIONS = (
    "send", "send", "edit", "edit", "regenerate", "regenerate", "fail_to_regenerate", "show_sibling", "show_sibling",
    "fork", "open", "new", "rename", "pin", "delete",
)  # fmt: skip


async def play(operations: list[tuple[str, int]]) -> None:
    driver = Driver()
    for name, pick in operations:
        if driver.trees.keys() <= set(driver.deleted) and name in ("open", "delete"):
            continue
        before = {key: tree for key, tree in driver.trees.items() if key not in driver.deleted}
        driver.trees, hidden = before, {key: driver.trees[key] for key in driver.deleted}
        await getattr(driver, name)(pick)
        driver.check_open()
        driver.trees |= hidden
    await driver.undelete_all()
    driver.check_all()
    driver.store.close()


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 1000)), min_size=3, max_size=25))
def test_any_order_of_operations(operations: list[tuple[str, int]]) -> None:
    asyncio.run(play([("send", 0), *operations]))


# ---- one by one


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "hotslot.db")


async def test_an_edit_keeps_its_files(store: Store) -> None:
    session = ChatSession(ScriptedEngine((Say("a"),)), store, Settings(), MODEL)
    await run(session.send("one", [Attachment("a.txt", "x")]))
    await run(session.edit(session.messages[0].id, "two"))
    assert [(file.name, file.text) for file in session.messages[0].attachments] == [("a.txt", "x")]
    assert len(session.siblings(session.messages[0].id)) == 2


async def test_what_cannot_be_edited_is_said_and_changes_nothing(store: Store) -> None:
    session = ChatSession(ScriptedEngine((Say("a"),)), store, Settings(), MODEL)
    await run(session.send("one"))
    question, answer = session.messages
    for message_id, text, words in ((answer.id, "x", "regenerate"), (question.id, " ", "empty"), ("?", "x", "branch")):
        with pytest.raises(RequestError, match=words):
            await run(session.edit(message_id, text))
    assert texts(session) == ["one", "a"]
    assert not session.is_busy


async def test_a_failed_answer_anew_leaves_the_old_one_in_sight(store: Store) -> None:
    session = ChatSession(ScriptedEngine((Say("a"),), (Crash(),), (Say("b"),)), store, Settings(), MODEL)
    await run(session.send("one"))
    await run(session.regenerate())
    assert [(m.content, m.status) for m in session.messages] == [("one", "complete"), ("a", "complete")]
    await run(session.send("two"))
    assert texts(session) == ["one", "a", "two", "b"]


async def test_the_sibling_in_sight_is_remembered(store: Store) -> None:
    session = ChatSession(ScriptedEngine((Say("a"),), (Say("b"),)), store, Settings(), MODEL)
    await run(session.send("one"))
    await run(session.regenerate())
    first_id, second_id = session.siblings(session.messages[1].id)
    assert session.messages[1].id == second_id
    await session.show_sibling(first_id)
    assert texts(session) == ["one", "a"]
    assert session.conversation is not None
    again = ChatSession(ScriptedEngine(), store, Settings(), MODEL)
    await again.open(session.conversation.id)
    assert texts(again) == ["one", "a"]


async def test_nothing_changes_where_the_store_cannot(store: Store) -> None:
    session = ChatSession(ScriptedEngine((Say("a"),)), store, Settings(), MODEL)
    await run(session.send("one"))
    answer: Message = session.messages[1]
    store._database.read("PRAGMA query_only = ON")
    for change in (session.show_sibling(answer.id), session.fork(answer.id), session.rename("x")):
        with pytest.raises(StoreError):
            await change
    assert texts(session) == ["one", "a"]
    assert session.conversation is not None
    assert session.conversation.title == "one"


def test_a_tree_of_ids() -> None:
    tree = MessageTree(MessageLink(*pair) for pair in [("a", None), ("b", "a"), ("c", "a"), ("d", "b"), ("e", None)])
    assert tree.siblings("c") == ("b", "c")
    assert tree.siblings("e") == ("a", "e")
    assert tree.siblings("unknown") == ("unknown",)
    assert tree.newest_leaf("a") == "d"
    assert tree.newest_leaf("c") == "c"
    tree.add(MessageLink("c", "a"))
    assert tree.siblings("b") == ("b", "c")
