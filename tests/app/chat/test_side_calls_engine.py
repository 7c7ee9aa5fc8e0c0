"""Side calls on the real engine: titles appear, and text, cache and first token of the chat stay as they are."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from app.chat.events import AnswerTextStreamed, PromptStarted, TurnEnded
from app.chat.session import ChatSession
from app.documents.passages import pieces_of
from app.documents.reading_plan import ReadingPlan
from app.engine import LocalEngine, ProgressCallback
from app.locations import DEMO_MODEL, asset_path
from app.messages import Attachment
from app.settings import Settings
from app.store.conversations import Store
from runtime.options import EngineOptions
from runtime.protocol import Loaded

DEMO = asset_path(DEMO_MODEL)
pytestmark = [
    pytest.mark.skipif(not (DEMO / "config.json").is_file(), reason="the demo model is not in this checkout"),
    pytest.mark.asyncio(loop_scope="module"),
]
QUESTIONS = ("How do I bake bread at home?", "Why is the sky blue?")
FOLLOW_UP = "Tell me more about it, please."


class KeptEngine(LocalEngine):
    """Loads once, whatever session asks."""

    said: Loaded | None = None

    async def start(self, options: EngineOptions, on_progress: ProgressCallback | None = None) -> Loaded:
        self.said = self.said or await super().start(options, on_progress)
        return self.said


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[LocalEngine]:
    kept = KeptEngine()
    yield kept
    await kept.close()


def session_of(engine: LocalEngine, names_chats: bool, max_tokens: int = 16) -> ChatSession:
    """A session over a store of its own."""
    settings = Settings(temperature=0.0, thinking="off", max_tokens=max_tokens)
    return ChatSession(engine, Store.in_memory(), settings, DEMO, names_chats=names_chats)


async def turn(session: ChatSession, text: str) -> tuple[str, int, float]:
    """The answer, the tokens of the prompt that were not computed again, and seconds to the first text."""
    began_s, first_s, cached = time.monotonic(), 0.0, -1
    async for event in session.send(text):
        if isinstance(event, PromptStarted):
            cached = event.cached_tokens
        elif isinstance(event, AnswerTextStreamed) and not first_s:
            first_s = time.monotonic() - began_s
        elif isinstance(event, TurnEnded):
            assert event.outcome in ("stop", "length"), event.error
    return session.messages[-1].content, cached, first_s


async def chats(session: ChatSession) -> list[tuple[str, int, float]]:
    """Two turns on every question, the second as soon as the first has ended."""
    turns = []
    for question in QUESTIONS:
        session.new()
        turns.append(await turn(session, question))
        turns.append(await turn(session, FOLLOW_UP))
    await session.side_calls.settle()
    session.side_calls.check_integrity()
    return turns


async def test_titles_appear_and_the_chat_is_the_same(engine: LocalEngine) -> None:
    # What the first run leaves for reuse is there for both others.
    await chats(session_of(engine, names_chats=False))
    plain = session_of(engine, names_chats=False)
    named = session_of(engine, names_chats=True)
    without = [(text, cached) for text, cached, _ in await chats(plain)]
    assert [(text, cached) for text, cached, _ in await chats(named)] == without
    assert plain.side_calls.calls == ()
    assert sum(call.state == "done" for call in named.side_calls.calls) == len(QUESTIONS)
    store = named._transcript._store
    titles = {c.title: c.title_source for c in store.list_conversations()}
    assert set(titles.values()) == {"model"}
    assert not set(titles) & set(QUESTIONS)
    assert all(1 <= len(title.split()) <= 8 for title in titles)


async def test_three_at_once_leave_a_chat_its_place_and_its_text(engine: LocalEngine) -> None:
    session = session_of(engine, names_chats=False, max_tokens=40)
    alone, *_ = await turn(session, QUESTIONS[0])
    session.new()
    asked = [asyncio.ensure_future(session.side_jobs.ask_aside(f"Tell me a long story of {n} bears.")) for n in "345"]
    while [call.state for call in session.side_calls.calls] != ["running"] * 3:
        await asyncio.sleep(0.01)
    beside, *_ = await turn(session, QUESTIONS[0])
    assert beside == alone
    stats = await engine.stats()
    assert stats.num_queued == 0
    assert all(await asyncio.gather(*asked))
    assert [call.state for call in session.side_calls.calls] == ["done"] * 3


async def test_cancelled_ones_leave_the_engine_at_once(engine: LocalEngine) -> None:
    session = session_of(engine, names_chats=False)
    asked = [asyncio.ensure_future(session.side_jobs.ask_aside(f"Tell me a long story of {n} bears.")) for n in "34567"]
    while [call.state for call in session.side_calls.calls].count("running") < 3:
        await asyncio.sleep(0.01)
    for call in session.side_calls.calls:
        session.side_calls.cancel(call.id)
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, Exception) for result in results)
    for _ in range(100):
        stats = await engine.stats()
        if stats.num_running == stats.num_queued == 0:
            break
        await asyncio.sleep(0.05)
    assert (stats.num_running, stats.num_queued) == (0, 0)
    session.side_calls.check_integrity()


TOWN = Attachment(
    "town.txt",
    "The harbour office opens at seven. The keeper of the harbour is Petra Olsen. She likes her work.\n\n"
    "The old mill stands behind the church. It was built in 1874. Today it is used as a small theatre.\n\n"
    "Every Friday there is a market on the main square. Farmers sell cheese, honey and apples there.\n\n"
    "The railway station has three platforms. A ticket to the coast costs nine euros. Trains leave at noon.",
)


async def test_a_document_read_in_pieces_finds_facts_and_their_lines(engine: LocalEngine) -> None:
    session = session_of(engine, names_chats=False)
    async for _ in session.warm_up():
        pass
    plan = ReadingPlan("all", pieces_of(TOWN, 240), "", 100, 40)
    assert len(plan.passages) == 2
    right = 0
    for question, fact, mark in (
        ("Who is the keeper of the harbour?", "Petra Olsen", "[line 1]"),
        ("How much is a ticket to the coast?", "nine euros", "[line 7]"),
    ):
        notes = await session.side_jobs.read_pieces(TOWN, question, plan)
        right += any(line.startswith(mark) and fact in line for line in notes.split("\n"))
    # A small model may miss one.
    assert right >= 1


@pytest.mark.speed
async def test_the_first_token_comes_as_soon(engine: LocalEngine) -> None:
    """The turn that follows at once meets the title's call: medians over rounds that take turns."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    await chats(session_of(engine, names_chats=False))
    for _ in range(4):
        for names_chats in (False, True):
            turns = await chats(session_of(engine, names_chats))
            seconds[names_chats] += [first_s for _, _, first_s in turns[1::2]]
    without_s, with_s = statistics.median(seconds[False]), statistics.median(seconds[True])
    print(f"first token of a turn: {without_s * 1000:.0f} ms without titles, {with_s * 1000:.0f} ms with")
    # A step that runs is not interrupted; the rest is the machine's noise.
    assert with_s < 1.3 * without_s + 0.1
