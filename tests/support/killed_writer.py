"""A second instance of the app for tests that kill it: says things in one conversation until it dies.

Every text carries the hash of the rest of it, so that half a message shows.
"""

import asyncio
import hashlib
import random
from multiprocessing.connection import Connection
from pathlib import Path

from app.chat.events import TurnEnded, UserMessageStored
from app.chat.session import ChatSession
from app.settings import Settings
from app.store.conversations import Store
from tests.support.scripted_engine import Say, ScriptedEngine


def whole_text(seed: int) -> str:
    """A text of up to 50,000 characters that can be checked."""
    body = str(seed) + "x" * random.Random(seed).randrange(50_000)
    return hashlib.sha256(body.encode()).hexdigest() + body


def is_whole(text: str) -> bool:
    return hashlib.sha256(text[64:].encode()).hexdigest() == text[:64]


def write_turns(database: Path, conversation_id: str, seed: int, told: Connection) -> None:
    """Sends the id of every message as soon as the session says that it is stored. Never returns."""
    asyncio.run(_write_turns(database, conversation_id, seed, told))


async def _write_turns(database: Path, conversation_id: str, seed: int, told: Connection) -> None:
    engine = ScriptedEngine()
    session = ChatSession(engine, Store.open(database), Settings(), Path("/models/scripted"))
    await session.open(conversation_id)
    while True:
        seed += 1
        engine.scripts = [(Say(whole_text(-seed)),)]
        async for event in session.send(whole_text(seed)):
            if isinstance(event, UserMessageStored):
                told.send(event.message_id)
            elif isinstance(event, TurnEnded):
                assert event.outcome == "stop"
                told.send(event.message_id)
