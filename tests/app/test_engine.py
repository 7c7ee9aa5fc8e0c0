"""The engine door over a real engine process: streams, cancels, survives the process's death."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import psutil
import pytest
import pytest_asyncio

from app.chat.events import AnswerTextStreamed, TurnEnded, TurnEvent
from app.chat.session import ChatSession
from app.engine import LocalEngine
from app.errors import HotslotError
from app.locations import DEMO_MODEL, asset_path
from app.settings import Settings
from app.store.conversations import Store
from runtime.errors import CheckpointError
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import ChatMessage, CountTokens, EngineStats, Finished, Generate, TextProduced

DEMO = asset_path(DEMO_MODEL)
pytestmark = pytest.mark.skipif(not (DEMO / "config.json").is_file(), reason="the demo model is not in this checkout")
LONG = SamplingOptions(temperature=2.0, seed=1, max_tokens=4000)
MESSAGES = (ChatMessage("user", "Tell me a long story about a bear."),)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[LocalEngine]:
    local = LocalEngine()
    await local.start(EngineOptions(DEMO, num_threads=1))
    yield local
    await local.close()


@pytest.fixture
def children() -> Callable[[], list[psutil.Process]]:
    """The processes that this test has started: engines shared by other tests may be alive beside them."""
    before = {child.pid for child in psutil.Process().children()}
    return lambda: [child for child in psutil.Process().children() if child.pid not in before]


@pytest.mark.asyncio(loop_scope="module")
async def test_stream_stats_and_count(engine: LocalEngine) -> None:
    seen: list[EngineStats] = []
    engine.on_stats = seen.append
    request = Generate("one", MESSAGES, SamplingOptions(max_tokens=24))
    events = [event async for event in engine.generate(request)]
    assert isinstance(events[-1], Finished)
    text = "".join(event.text for event in events if isinstance(event, TextProduced))
    assert text == events[-1].reasoning + events[-1].text
    assert await engine.count_tokens(CountTokens("two", MESSAGES)) == events[-1].usage.prompt_tokens
    assert (await engine.stats()).num_routed > 0


@pytest.mark.asyncio(loop_scope="module")
async def test_leaving_the_iteration_stops_the_engine(engine: LocalEngine) -> None:
    events = engine.generate(Generate("one", MESSAGES, LONG))
    async for event in events:
        if isinstance(event, TextProduced):
            break
    await events.aclose()
    started = time.monotonic()
    last = [event async for event in engine.generate(Generate("two", MESSAGES, SamplingOptions(max_tokens=2)))][-1]
    assert isinstance(last, Finished)
    assert time.monotonic() - started < 10


async def test_session_goes_on_after_the_death_of_the_process(
    children: Callable[[], list[psutil.Process]],
) -> None:
    store = Store.in_memory()
    engine = LocalEngine()
    session = ChatSession(engine, store, Settings(temperature=2.0, seed=1, max_tokens=2000), DEMO)

    async def say(text: str, kills: bool) -> TurnEnded:
        last: TurnEvent | None = None
        async for event in session.send(text):
            last = event
            if kills and isinstance(event, AnswerTextStreamed):
                for process in children():
                    process.kill()
        assert isinstance(last, TurnEnded)
        return last

    try:
        failed = await say("Tell me a long story.", kills=True)
        assert failed.outcome == "failed"
        assert "send the message again" in failed.error
        assert session.messages[-1].status == "failed"
        session.apply_settings(Settings(max_tokens=4))
        assert (await say("Hello!", kills=False)).outcome in ("stop", "length")
        assert len(store.branch(session.messages[-1].id)) == 4
    finally:
        await session.close()
    assert children() == []


async def test_cancelled_start_leaves_no_process(children: Callable[[], list[psutil.Process]]) -> None:
    engine = LocalEngine()
    start = asyncio.create_task(engine.start(EngineOptions(DEMO)))
    while not children():
        await asyncio.sleep(0.01)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert children() == []
    assert not engine.is_running


async def test_bad_folder_is_named(tmp_path: object, children: Callable[[], list[psutil.Process]]) -> None:
    engine = LocalEngine()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        await engine.start(EngineOptions(tmp_path))  # type: ignore[arg-type]
    assert children() == []


async def test_nothing_loaded() -> None:
    engine = LocalEngine()
    with pytest.raises(HotslotError, match="No model is loaded"):
        await engine.stats()
    await engine.cancel("x")
    await engine.close()
