"""The event loop never waits for SQLite: calls run on the store's thread, in order, and to their end."""

import asyncio
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from app.chat.events import NoticeShown, PermissionAnswer, PermissionAsked, TurnEnded
from app.chat.session import ChatSession
from app.errors import StoreError
from app.messages import Message
from app.settings import Settings
from app.store.conversations import Store
from tests.support.scripted_engine import Call, Say, ScriptedEngine
from tests.support.tool_sessions import outcomes, say, session_with

LOCKED_S = 1.2
"""Every write meets the lock for so long; a busy machine stops a free loop for less than half of it."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "hotslot.db")


async def longest_pause(work: asyncio.Future[Any]) -> float:
    """Seconds for which the loop did nothing else, at the worst, until the work was done."""
    longest = 0.0
    while not work.done():
        asked = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - asked)
    return longest


async def test_a_lock_of_another_program_stops_neither_loop_nor_chat(store: Store) -> None:
    other = sqlite3.connect(store._database.name, isolation_level=None)
    store._database.read(f"PRAGMA busy_timeout = {int(LOCKED_S * 1000)}")
    session = ChatSession(ScriptedEngine(), store, Settings(), Path("/models/scripted"))
    other.execute("BEGIN EXCLUSIVE")

    async def turn() -> list[object]:
        return [event async for event in session.send("hi")]

    task = asyncio.ensure_future(turn())
    assert await longest_pause(task) < LOCKED_S / 2
    events = task.result()
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].outcome == "stop"
    assert any(isinstance(event, NoticeShown) and "not saved" in event.text for event in events)
    other.execute("ROLLBACK")
    async for _ in session.send("again"):
        pass
    assert session.conversation is not None
    stored = store.branch(store.conversation(session.conversation.id).head_id)
    assert tuple(stored) == session.messages
    assert len(stored) == 4


async def test_permissions_are_read_and_kept_beside_the_loop(store: Store) -> None:
    engine = ScriptedEngine((Call("echo", {"text": "a"}),), (Say("done"),))
    session = session_with(engine, otherwise="ask", store=store)
    store._database.read(f"PRAGMA busy_timeout = {int(LOCKED_S * 1000)}")
    other = sqlite3.connect(store._database.name, isolation_level=None)

    def decide(_: PermissionAsked) -> PermissionAnswer:
        other.execute("BEGIN EXCLUSIVE")
        return PermissionAnswer(True, "always")

    task = asyncio.ensure_future(say(session, "go", decide))
    assert await longest_pause(task) < LOCKED_S / 2
    [(status, _)] = outcomes(task.result())
    assert status == "done"
    notices = [event.text for event in task.result() if isinstance(event, NoticeShown)]
    assert any("Another program holds" in notice and "This decision holds once" in notice for notice in notices)
    other.execute("ROLLBACK")


async def test_calls_run_in_the_order_they_were_asked_in(store: Store) -> None:
    conversation = store.create_conversation("demo")
    threads = set()

    def rename(title: str) -> None:
        threads.add(threading.current_thread())
        store.rename(conversation.id, title)

    await asyncio.gather(*(store.run(rename, str(number)) for number in range(50)))
    assert store.conversation(conversation.id).title == "49"
    assert len(threads) == 1
    assert threading.current_thread() not in threads


async def test_what_was_asked_is_done_though_nobody_waits(store: Store) -> None:
    conversation = store.create_conversation("demo")
    is_held = threading.Event()
    holding = asyncio.ensure_future(store.run(is_held.wait))
    message = Message(conversation.id, None, "user", "kept")
    appending = asyncio.ensure_future(store.run(store.append_message, message))
    await asyncio.sleep(0)
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    is_held.set()
    await holding
    store.close()
    assert Store.open(Path(store._database.name)).branch(message.id) == [message]


async def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.run(store.list_conversations)
