"""Two instances write into one conversation and are killed in the middle: what was told as stored is there, whole."""

import contextlib
import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from app.store.conversations import Store
from tests.support.killed_writer import is_whole, write_turns

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.support.killed_writer"])


def killed_writers(database: Path, conversation_id: str, rng: random.Random) -> set[str]:
    """Start two writers, kill each at a moment of its own; returns the messages that they told as stored."""
    told: list[Connection] = []
    writers = []
    for _ in range(2):
        ours, theirs = CONTEXT.Pipe(duplex=False)
        seed = rng.randrange(1, 2**40)
        writer = CONTEXT.Process(target=write_turns, args=(database, conversation_id, seed, theirs), daemon=True)
        writer.start()
        theirs.close()
        told.append(ours)
        writers.append(writer)
    ids = {connection.recv() for connection in told}
    for writer in rng.sample(writers, 2):
        time.sleep(rng.random() * 0.05)
        writer.kill()
        writer.join()
    for connection in told:
        with contextlib.suppress(EOFError):
            while True:
                ids.add(connection.recv())
    return ids


@pytest.mark.parametrize("num_rounds", [20, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_killed_instances_lose_nothing_they_told_as_stored(tmp_path: Path, num_rounds: int) -> None:
    database = tmp_path / "hotslot.db"
    store = Store.open(database)
    conversation = store.create_conversation("demo")
    rng = random.Random(num_rounds)
    told: set[str] = set()
    for _ in range(num_rounds):
        told |= killed_writers(database, conversation.id, rng)
        with contextlib.closing(Store.open(database)) as reopened:
            messages = {message.id: message for message in reopened.messages(conversation.id)}
            assert told <= messages.keys()
            assert all(is_whole(message.content) for message in messages.values())
            assert reopened.conversation(conversation.id).head_id in messages
            reopened.check_integrity()
            for message in messages.values():
                parent = messages[message.parent_id].role if message.parent_id is not None else None
                assert parent == "user" if message.role == "assistant" else parent in (None, "user", "assistant")
    assert len(told) >= 2 * num_rounds
