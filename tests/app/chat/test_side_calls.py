"""Side calls run beside the chat, few at a time, end once, and never fail or delay it; titles come from one."""

import asyncio
import random
from pathlib import Path

import pytest

from app.chat.events import TurnEnded
from app.chat.session import ChatSession
from app.chat.side_calls import MOST_LISTED, MOST_RUNNING, SideCall, SideCalls
from app.chat.titles import tidy_title
from app.errors import SideCallCancelledError, SideCallError
from app.settings import Settings
from app.store.conversations import Store
from runtime.options import EngineOptions
from runtime.protocol import ChatMessage
from tests.support.scripted_engine import HELLO, Crash, Hang, Refuse, Say, ScriptedEngine, Step

MODEL = Path("/models/scripted")
QUESTION = (ChatMessage("user", "What is 2 + 2?"),)


async def started(*side_scripts: tuple[Step, ...]) -> ScriptedEngine:
    engine = ScriptedEngine()
    engine.side_scripts = list(side_scripts)
    await engine.start(EngineOptions(MODEL))
    return engine


async def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


def states(side_calls: SideCalls) -> list[str]:
    return [call.state for call in side_calls.calls]


async def test_an_answer_and_its_record() -> None:
    engine = await started((Say("thinks", is_reasoning=True), Say(" fo"), Say("ur\x1b[31m ")))
    side_calls = SideCalls(engine)
    seen: list[SideCall] = []
    side_calls.on_changed = lambda: seen.append(side_calls.calls[-1])
    assert await side_calls.ask("aside", "two\nplus two", QUESTION, 20, "c") == "four[31m"
    [request] = engine.side_requests
    assert (request.kind, request.thinking, request.sampling.max_tokens) == ("side_call", False, 20)
    assert (request.messages, request.conversation_id) == (QUESTION, "c")
    [call] = side_calls.calls
    assert (call.kind, call.subject, call.state, call.error) == ("aside", "two plus two", "done", "")
    assert call.usage.prompt_tokens > 0
    assert call.usage.completion_tokens == 3
    assert call.latency_s is not None
    assert [state for i, state in enumerate(s.state for s in seen) if i == 0 or seen[i - 1].state != state] == [
        "waiting",
        "running",
        "done",
    ]
    side_calls.check_integrity()


async def test_few_run_at_once_and_all_end() -> None:
    side_calls = SideCalls(await started((Say("x", pause_s=0.01),)))
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, states(side_calls).count("running"))

    side_calls.on_changed = look
    answers = await asyncio.gather(*(side_calls.ask("reading", str(i), QUESTION, 5) for i in range(20)))
    assert answers == ["x"] * 20
    assert most == MOST_RUNNING
    assert states(side_calls) == ["done"] * 20
    side_calls.check_integrity()


async def test_each_can_be_cancelled_waiting_or_running() -> None:
    engine = await started((Say("x"), Hang()))
    side_calls = SideCalls(engine)
    asked = [asyncio.ensure_future(side_calls.ask("aside", str(i), QUESTION, 5)) for i in range(MOST_RUNNING + 2)]
    await until(lambda: states(side_calls).count("running") == MOST_RUNNING)
    for call in side_calls.calls:
        side_calls.cancel(call.id)
    side_calls.cancel("unknown")
    for result in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(result, SideCallCancelledError)
    assert states(side_calls) == ["cancelled"] * len(asked)
    assert engine._cancels == {}
    side_calls.check_integrity()


async def test_one_that_the_engine_stopped_was_cancelled() -> None:
    engine = await started((Say("x"), Hang()))
    side_calls = SideCalls(engine)
    asked = asyncio.ensure_future(side_calls.ask("aside", "s", QUESTION, 5))
    await until(lambda: states(side_calls) == ["running"])
    await engine.cancel(side_calls.calls[0].id)
    with pytest.raises(SideCallCancelledError):
        await asked
    side_calls.check_integrity()


async def test_who_no_longer_waits_stops_it() -> None:
    side_calls = SideCalls(await started((Say("x"), Hang())))
    asked = asyncio.ensure_future(side_calls.ask("aside", "s", QUESTION, 5))
    await until(lambda: states(side_calls) == ["running"])
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert states(side_calls) == ["cancelled"]
    side_calls.check_integrity()


@pytest.mark.parametrize("script", [(Refuse("too long"),), (Say("x"), Crash())])
async def test_a_failure_is_one_line(script: tuple[Step, ...]) -> None:
    side_calls = SideCalls(await started(script))
    with pytest.raises(SideCallError):
        await side_calls.ask("aside", "s", QUESTION, 5)
    [call] = side_calls.calls
    assert call.state == "failed"
    assert call.error
    side_calls.check_integrity()


async def test_without_a_model_it_fails_and_starts_none() -> None:
    engine = ScriptedEngine()
    with pytest.raises(SideCallError, match="No model is loaded"):
        await SideCalls(engine).ask("aside", "s", QUESTION, 5)
    assert engine.starts == []


@pytest.mark.parametrize("seed", range(3))
async def test_random_asking_cancelling_and_crashing_leaves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    engine = await started()
    scripts: list[tuple[Step, ...]] = [
        (Say("x"),),
        (Say("x", pause_s=0.002), Say("y")),
        (Refuse(),),
        (Say("x"), Hang()),
    ]
    side_calls = SideCalls(engine)
    asked: list[asyncio.Future[str]] = []
    for _ in range(150):
        match rng.choice(("ask", "ask", "ask", "cancel", "leave", "crash", "wait")):
            case "ask":
                engine.side_scripts = [rng.choice(scripts)]
                asked.append(asyncio.ensure_future(side_calls.ask("aside", "s", QUESTION, 5)))
            case "cancel" if side_calls.calls:
                side_calls.cancel(rng.choice(side_calls.calls).id)
            case "leave" if asked:
                rng.choice(asked).cancel()
            case "crash" if rng.random() < 0.2:
                engine.crash()
                await engine.start(EngineOptions(MODEL))
            case _:
                await asyncio.sleep(0.001 * rng.randrange(3))
        side_calls.check_integrity()
    # What was asked last begins.
    await asyncio.sleep(0)
    await side_calls.close()
    for result in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(result, str | SideCallError | asyncio.CancelledError), result
    side_calls.check_integrity()
    assert side_calls._asking == engine._cancels == {}
    assert all(call.is_over and call.latency_s is not None for call in side_calls.calls)


async def test_the_list_is_bounded() -> None:
    side_calls = SideCalls(await started((Say("x"),)))
    for i in range(MOST_LISTED + 5):
        await side_calls.ask("aside", str(i), QUESTION, 5)
    assert [call.subject for call in side_calls.calls] == [str(i) for i in range(5, MOST_LISTED + 5)]


async def test_closing_ends_all() -> None:
    side_calls = SideCalls(await started((Say("x"), Hang())))

    async def job() -> None:
        await side_calls.ask("title", "s", QUESTION, 5)

    side_calls.start(job)
    await until(lambda: states(side_calls) == ["running"])
    await side_calls.close()
    assert states(side_calls) == ["cancelled"]
    side_calls.check_integrity()


# ---- titles


def session_of(engine: ScriptedEngine, store: Store) -> ChatSession:
    return ChatSession(engine, store, Settings(), MODEL, names_chats=True)


async def end_of(session: ChatSession, text: str) -> TurnEnded:
    events = [event async for event in session.send(text)]
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


async def test_a_title_appears_beside_the_chat() -> None:
    store = Store.in_memory()
    engine = ScriptedEngine()
    engine.side_scripts = [(Say('"Greetings'), Say(', briefly."\n\nmore'))]
    session = session_of(engine, store)
    was_told = asyncio.Event()
    session.side_jobs.on_title_changed = was_told.set
    assert (await end_of(session, "hi you")).outcome == "stop"
    await asyncio.wait_for(was_told.wait(), 5)
    assert session.conversation is not None
    assert session.conversation.title == "Greetings, briefly"
    assert [c.title for c in store.list_conversations()] == ["Greetings, briefly"]
    [request] = engine.side_requests
    [message] = request.messages
    assert message.content == ("Write a short title for this conversation.\n\nUser: hi you\nAssistant: Hello there.")
    await end_of(session, "more")
    assert len(engine.side_requests) == 1
    assert len(engine.requests[1].messages) == 3


async def test_titles_wait_for_the_end_of_a_turn() -> None:
    store = Store.in_memory()
    engine = ScriptedEngine()
    engine.side_scripts = [(Say("x"), Hang()), (Say("x"), Hang()), (Say("Named"),)]
    session = session_of(engine, store)
    await end_of(session, "one")
    await until(lambda: states(session.side_calls) == ["running"])
    session.new()
    await end_of(session, "two")
    await until(lambda: states(session.side_calls) == ["cancelled", "running"])
    await end_of(session, "three")
    await session.side_calls.settle()
    assert [c.title for c in store.list_conversations()] == ["Named", "Named"]
    assert states(session.side_calls) == ["cancelled", "cancelled", "done", "done"]
    session.side_calls.check_integrity()


async def test_the_users_own_title_is_kept() -> None:
    store = Store.in_memory()
    engine = ScriptedEngine()
    engine.side_scripts = [(Say("By a model", pause_s=0.05),)]
    session = session_of(engine, store)
    await end_of(session, "hi")
    await session.rename("My own")
    await session.side_calls.settle()
    await session.close()
    assert [c.title for c in store.list_conversations()] == ["My own"]
    assert session.conversation is not None
    assert session.conversation.title == "My own"


@pytest.mark.parametrize("script", [(Refuse(),), (), (Say("  \n"),), (Say("x"), Hang())])
async def test_without_a_title_the_first_words_stay_and_the_chat_goes_on(script: tuple[Step, ...]) -> None:
    store = Store.in_memory()
    engine = ScriptedEngine()
    engine.side_scripts = [script]
    session = session_of(engine, store)
    for text in ("first words", "second"):
        assert (await end_of(session, text)).outcome == "stop"
    await session.close()
    assert [c.title for c in store.list_conversations()] == ["first words"]
    session.side_calls.check_integrity()


async def test_a_failed_answer_gets_no_title() -> None:
    engine = ScriptedEngine((Crash(),), HELLO)
    session = session_of(engine, Store.in_memory())
    await end_of(session, "one")
    assert engine.side_requests == []
    await end_of(session, "two")
    await until(lambda: len(engine.side_requests) == 1)
    await session.close()


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Bread baking", "Bread baking"),
        ('Title: "Bread baking."', "Bread baking"),
        ("\n\n**Bread** baking**\nand more", "Bread** baking"),
        ("# Heading: Bread", "Bread"),
        ("“Bread”", "Bread"),
        ("...", ""),
        ("\x1b[0m\u202e", "[0m"),
        ("word " * 40, "word word word word word word word word word word word…"),
    ],
)
def test_a_title_is_one_short_line(said: str, title: str) -> None:
    assert tidy_title(said) == title
