"""A turn ends once, loses nothing, and says what went wrong in one line."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from app.chat.events import (
    AnswerTextStreamed,
    EngineReady,
    EngineStarting,
    NoticeShown,
    PromptStarted,
    StatsUpdated,
    ToolCallRejected,
    ToolCallShown,
    TurnEnded,
    TurnEvent,
    UserMessageStored,
)
from app.chat.session import ChatSession
from app.errors import StoreError, TurnInProgressError
from app.messages import Attachment
from app.settings import Settings
from app.store.conversations import Store
from runtime.errors import BudgetError, CheckpointError, RequestError
from runtime.protocol import Generate, RequestEvent
from tests.support.scripted_engine import (
    CRASH_MESSAGE,
    HELLO,
    BadCall,
    Call,
    Crash,
    End,
    Hang,
    Refuse,
    Say,
    ScriptedEngine,
)

MODEL = Path("/models/scripted")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "hotslot.db")


def session_of(engine: ScriptedEngine, store: Store, settings: Settings | None = None) -> ChatSession:
    return ChatSession(engine, store, settings or Settings(), MODEL)


async def say(session: ChatSession, text: str, attachments: Sequence[Attachment] = ()) -> list[TurnEvent]:
    return [event async for event in session.send(text, attachments)]


def end_of(events: list[TurnEvent]) -> TurnEnded:
    ends = [event for event in events if isinstance(event, TurnEnded)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    return ends[0]


def notices(events: list[TurnEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, NoticeShown)]


async def test_first_turn_loads_streams_and_stores(store: Store) -> None:
    session = session_of(ScriptedEngine(), store)
    events = await say(session, "hi")
    kinds = [type(event) for event in events]
    order = [UserMessageStored, EngineStarting, EngineReady, PromptStarted, AnswerTextStreamed, TurnEnded]
    assert sorted(order, key=kinds.index) == order
    assert StatsUpdated in kinds
    end = end_of(events)
    assert (end.outcome, end.error) == ("stop", "")
    user, answer = session.messages
    assert (answer.content, answer.reasoning, answer.status) == ("Hello there.\n", "Let me think.", "complete")
    assert answer.id == end.message_id
    assert answer.generated_ids
    assert answer.tokenizer_fingerprint == "scripted"
    assert answer.parent_id == user.id
    assert session.conversation is not None
    assert tuple(store.branch(store.conversation(session.conversation.id).head_id)) == session.messages


async def test_reopened_conversation_goes_on_with_its_ids(store: Store) -> None:
    first = session_of(ScriptedEngine(), store)
    await say(first, "hi")
    assert first.conversation is not None
    engine = ScriptedEngine()
    second = session_of(engine, store)
    await second.open(first.conversation.id)
    await say(second, "and?")
    roles = [message.role for message in engine.requests[0].messages]
    assert roles == ["user", "assistant", "user"]
    assert engine.requests[0].messages[1].generated_ids == first.messages[1].generated_ids


async def test_engine_is_started_once_until_loading_options_change(store: Store) -> None:
    engine = ScriptedEngine()
    session = session_of(engine, store)
    await say(session, "one")
    session.apply_settings(Settings(temperature=0.0))
    await say(session, "two")
    assert len(engine.starts) == 1
    assert engine.requests[1].sampling.temperature == 0.0
    assert engine.requests[1].sampling.top_k == 20
    session.apply_settings(Settings(policy="lru"))
    await say(session, "three")
    assert [options.policy for options in engine.starts] == ["rule", "lru"]
    async for _ in session.switch_model(Path("/models/other")):
        pass
    await say(session, "four")
    assert [options.model_path for options in engine.starts[2:]] == [Path("/models/other")]


async def test_a_model_that_is_not_loaded_leaves_the_former(store: Store) -> None:
    engine = ScriptedEngine()
    session = session_of(engine, store)
    await say(session, "one")
    engine.start_error = CheckpointError("a tensor is missing; download it again")
    with pytest.raises(CheckpointError):
        async for _ in session.switch_model(Path("/models/other")):
            pass
    engine.start_error = None
    assert (session.model_path, session.loaded) == (MODEL, None)
    async for event in session.switch_model(Path("/models/third")):
        if isinstance(event, EngineStarting):
            await session.cancel()
    assert session.model_path == MODEL
    assert end_of(await say(session, "two")).outcome == "stop"
    assert engine.starts[-1].model_path == MODEL


async def test_what_every_chat_begins_with_is_read_ahead_once(store: Store) -> None:
    engine = ScriptedEngine()
    session = session_of(engine, store, Settings(system_prompt="Be brief."))
    for _ in range(2):
        async for _ in session.warm_up():
            pass
        await session.opening.wait()
    [opening] = engine.opening_requests
    assert (opening.kind, opening.sampling.max_tokens) == ("opening", 1)
    assert [message.content for message in opening.messages] == ["Be brief."]
    session.apply_settings(Settings(system_prompt="Be long."))
    async for _ in session.warm_up():
        pass
    await session.opening.wait()
    assert len(engine.opening_requests) == 2
    await say(session, "hi")
    assert engine.requests[0].messages[0] == engine.opening_requests[1].messages[0]
    bare = ScriptedEngine()
    async for _ in session_of(bare, store).warm_up():
        pass
    await asyncio.sleep(0)
    assert bare.opening_requests == []


async def test_reading_ahead_gives_way_to_a_message(store: Store) -> None:
    class SlowEngine(ScriptedEngine):
        async def generate(self, request: Generate) -> AsyncGenerator[RequestEvent, None]:
            if request.kind == "opening":
                try:
                    await asyncio.sleep(60)
                finally:
                    self.cancelled_ids.append(request.request_id)
            async for event in super().generate(request):
                yield event

    engine = SlowEngine()
    session = session_of(engine, store, Settings(system_prompt="Be brief."))
    async for _ in session.warm_up():
        pass
    await asyncio.sleep(0)
    assert end_of(await say(session, "hi")).outcome == "stop"
    assert len(engine.cancelled_ids) == 1


async def test_cancel_keeps_the_partial_answer(store: Store) -> None:
    session = session_of(ScriptedEngine((Say("par"), Say("tial"), Hang()), HELLO), store)
    events: list[TurnEvent] = []
    async for event in session.send("go"):
        events.append(event)
        if isinstance(event, AnswerTextStreamed) and event.text == "tial":
            await session.cancel()
    assert end_of(events).outcome == "cancelled"
    assert (session.messages[-1].content, session.messages[-1].status) == ("partial", "cancelled")
    assert end_of(await say(session, "next")).outcome == "stop"


async def test_cancel_while_loading(store: Store) -> None:
    engine = ScriptedEngine(load_s=30)
    session = session_of(engine, store)
    events: list[TurnEvent] = []
    async for event in session.send("go"):
        events.append(event)
        if isinstance(event, EngineStarting):
            await session.cancel()
    assert end_of(events).outcome == "cancelled"
    assert [message.status for message in session.messages] == ["complete"]
    engine.load_s = 0
    assert end_of(await say(session, "next")).outcome == "stop"


async def test_conversations_open_while_the_engine_warms_up(store: Store) -> None:
    first = session_of(ScriptedEngine(), store)
    await say(first, "hi")
    assert first.conversation is not None
    session = session_of(ScriptedEngine(), store)
    async for event in session.warm_up():
        if isinstance(event, EngineStarting):
            await session.open(first.conversation.id)
            assert [message.content for message in session.messages] == ["hi", "Hello there.\n"]
            session.new()
            assert session.messages == ()
            with pytest.raises(TurnInProgressError):
                await say(session, "too early")
    await session.open(first.conversation.id)
    assert end_of(await say(session, "and?")).outcome == "stop"


async def test_a_model_folder_that_is_not_utf8_is_stored_readable(store: Store) -> None:
    session = session_of(ScriptedEngine(), store, Settings(model="/models/m\udcff\x1b[31m"))
    assert end_of(await say(session, "hi")).outcome == "stop"
    [conversation] = store.list_conversations()
    assert conversation.model == "/models/m[31m"


async def test_abandoned_turn_keeps_what_was_said(store: Store) -> None:
    engine = ScriptedEngine((Say("part"), Hang()), HELLO)
    session = session_of(engine, store)
    events = session.send("go")
    async for event in events:
        if isinstance(event, AnswerTextStreamed):
            break
    await events.aclose()
    assert (session.messages[-1].content, session.messages[-1].status) == ("part", "cancelled")
    assert not session.is_busy
    assert end_of(await say(session, "next")).outcome == "stop"


async def test_cancelled_task_keeps_what_was_said(store: Store) -> None:
    session = session_of(ScriptedEngine((Say("part"), Hang()), HELLO), store)
    got_text = asyncio.Event()

    async def run() -> None:
        async for event in session.send("go"):
            if isinstance(event, AnswerTextStreamed):
                got_text.set()

    task = asyncio.create_task(run())
    await got_text.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (session.messages[-1].content, session.messages[-1].status) == ("part", "cancelled")
    assert end_of(await say(session, "next")).outcome == "stop"


async def test_crash_is_one_line_and_the_next_message_starts_anew(store: Store) -> None:
    engine = ScriptedEngine((Say("part"), Crash()), HELLO)
    session = session_of(engine, store)
    end = end_of(await say(session, "go"))
    assert (end.outcome, end.error) == ("failed", CRASH_MESSAGE)
    assert (session.messages[-1].content, session.messages[-1].status) == ("part", "failed")
    assert session.loaded is None
    assert end_of(await say(session, "again")).outcome == "stop"
    assert len(engine.starts) == 2
    assert [m.content for m in engine.requests[1].messages] == ["go", "part", "again"]


async def test_unanswered_message_is_marked_and_not_sent_again(store: Store) -> None:
    engine = ScriptedEngine((Crash(),), HELLO)
    session = session_of(engine, store)
    end = end_of(await say(session, "lost"))
    assert (end.outcome, end.message_id) == ("failed", None)
    assert [message.status for message in session.messages] == ["failed"]
    await say(session, "found")
    assert [m.content for m in engine.requests[1].messages] == ["found"]
    assert session.conversation is not None
    stored = store.branch(store.conversation(session.conversation.id).head_id)
    assert [(m.content, m.status) for m in stored[:2]] == [("lost", "failed"), ("found", "complete")]


async def test_refused_prompt_does_not_block_the_conversation(store: Store) -> None:
    engine = ScriptedEngine(HELLO, (Refuse(),), HELLO)
    session = session_of(engine, store)
    await say(session, "hi")
    end = end_of(await say(session, "very long"))
    assert "9000" in end.error
    assert "8192" in end.error
    assert end_of(await say(session, "short")).outcome == "stop"
    assert "very long" not in [m.content for m in engine.requests[2].messages]


async def test_regenerate_answers_again_in_a_branch(store: Store) -> None:
    engine = ScriptedEngine((Say("one"),), (Say("two"),))
    session = session_of(engine, store)
    await say(session, "go")
    first = session.messages[-1]
    events = [event async for event in session.regenerate()]
    assert end_of(events).outcome == "stop"
    assert [m.content for m in session.messages] == ["go", "two"]
    assert [m.content for m in engine.requests[1].messages] == ["go"]
    assert session.conversation is not None
    assert {m.content for m in store.leaves(session.conversation.id)} == {"one", "two"}
    assert store.branch(first.id)[-1] == first


async def test_regenerate_retries_an_unanswered_message(store: Store) -> None:
    session = session_of(ScriptedEngine((Crash(),), HELLO), store)
    await say(session, "go")
    assert end_of([event async for event in session.regenerate()]).outcome == "stop"
    assert [(m.content, m.status) for m in session.messages] == [("go", "complete"), ("Hello there.\n", "complete")]
    assert session.conversation is not None
    assert store.branch(session.messages[0].id)[0].status == "complete"


async def test_regenerate_with_nothing_said(store: Store) -> None:
    with pytest.raises(RequestError, match="send a message first"):
        await anext(session_of(ScriptedEngine(), store).regenerate())


@pytest.mark.parametrize("text", ["", "  \n\t ", "\0\0", "\x1b\x07"])
async def test_empty_message_is_refused_and_not_stored(store: Store, text: str) -> None:
    engine = ScriptedEngine()
    session = session_of(engine, store)
    with pytest.raises(RequestError, match="empty"):
        await say(session, text)
    assert session.messages == ()
    assert engine.starts == []
    assert not session.is_busy


async def test_one_turn_at_a_time(store: Store) -> None:
    session = session_of(ScriptedEngine((Say("x"), Hang())), store)
    events = session.send("go")
    await anext(events)
    assert session.is_busy
    with pytest.raises(TurnInProgressError):
        session.new()
    with pytest.raises(TurnInProgressError):
        await session.open("x")
    with pytest.raises(TurnInProgressError, match="stop it or wait"):
        await say(session, "too early")
    await events.aclose()
    session.new()


async def test_failing_start_is_one_line(store: Store) -> None:
    engine = ScriptedEngine(start_error=BudgetError("8 slots do not fit into 1 KiB; at least 1 MiB is needed."))
    session = session_of(engine, store)
    end = end_of(await say(session, "go"))
    assert (end.outcome, end.error) == ("failed", str(engine.start_error))
    engine.start_error = None
    assert end_of(await say(session, "go")).outcome == "stop"


async def test_hostile_text_is_clean_in_events_and_store(store: Store) -> None:
    hostile = "a\x1b]52;c;aGk=\x07b\x9b31mc\u202ed\0e"
    engine = ScriptedEngine(
        (Say(hostile, is_reasoning=True), Say("x\r"), Say("\ny" + hostile), BadCall(hostile, hostile))
    )
    session = session_of(engine, store)
    attachment = Attachment("a.txt", "inside")
    events = await say(session, hostile, [attachment])
    texts = [event.text for event in events if isinstance(event, AnswerTextStreamed)]
    texts += [text for e in events if isinstance(e, ToolCallRejected) for text in (e.raw, e.reason)]
    texts += [m.content + m.reasoning for m in session.messages]
    assert session.conversation is not None
    texts.append(session.conversation.title)
    for text in texts:
        assert not set(text) & set("\x1b\x07\x9b\u202e\0\r")
    assert session.messages[1].content == "x\nya]52;c;aGk=b31mcde"


async def test_tool_calls_are_shown_and_stored(store: Store) -> None:
    session = session_of(ScriptedEngine((Say("calling"), Call("clock", {"zone": "UTC"}))), store)
    events = await say(session, "time?")
    assert [event.call.name for event in events if isinstance(event, ToolCallShown)] == ["clock"]
    assert end_of(events).outcome == "tool_calls"
    assert session.messages[-1].tool_calls[0].arguments == {"zone": "UTC"}
    assert session.conversation is not None
    assert store.branch(session.messages[-1].id)[-1].tool_calls == session.messages[-1].tool_calls


async def test_length_is_marked(store: Store) -> None:
    session = session_of(ScriptedEngine((Say("and so"), End("length"))), store)
    assert end_of(await say(session, "go")).outcome == "length"
    assert session.messages[-1].status == "length"


async def test_system_prompt_thinking_and_files_reach_the_engine(store: Store) -> None:
    engine = ScriptedEngine()
    session = session_of(engine, store, Settings(system_prompt="Be brief.", thinking="off"))
    await say(session, "what is in it?", [Attachment("a.md", "has ``` and ```` in it\n")])
    request = engine.requests[0]
    assert request.thinking is False
    assert [m.role for m in request.messages] == ["system", "user"]
    assert request.messages[1].content == "File a.md:\n`````\nhas ``` and ```` in it\n`````\n\nwhat is in it?"
    assert session.messages[0].content == "what is in it?"


async def test_full_disk_lets_the_chat_go_on_and_catches_up(store: Store) -> None:
    engine = ScriptedEngine()
    session = session_of(engine, store)
    await say(session, "saved")
    store._database.read("PRAGMA max_page_count = 1")
    events = await say(session, "not saved " + "x" * 200_000)
    assert end_of(events).outcome == "stop"
    [notice] = notices(events)
    assert "full" in notice
    assert "not saved" in notice
    assert notices(await say(session, "still not")) == []
    assert len(engine.requests[2].messages) == 5
    store._database.read("PRAGMA max_page_count = 100000")
    assert notices(await say(session, "now")) == ["The chat is saved again."]
    assert session.conversation is not None
    assert tuple(store.branch(store.conversation(session.conversation.id).head_id)) == session.messages


async def test_store_that_fails_from_the_start(store: Store) -> None:
    store._database.read("PRAGMA query_only = ON")
    session = session_of(ScriptedEngine(), store)
    events = await say(session, "hi")
    assert end_of(events).outcome == "stop"
    assert len(notices(events)) == 1
    store._database.read("PRAGMA query_only = OFF")
    await say(session, "again")
    assert [c.title for c in store.list_conversations()] == ["hi"]
    assert session.conversation is not None
    assert len(store.branch(store.conversation(session.conversation.id).head_id)) == 4


async def test_conversation_deleted_by_another_instance_is_written_anew(store: Store) -> None:
    session = session_of(ScriptedEngine(), store)
    await say(session, "one")
    assert session.conversation is not None
    store.delete(session.conversation.id)
    assert notices(await say(session, "two")) == []
    assert tuple(store.branch(session.messages[-1].id)) == session.messages


async def test_opening_a_missing_conversation_keeps_the_present_one(store: Store) -> None:
    session = session_of(ScriptedEngine(), store)
    await say(session, "one")
    before = session.messages
    with pytest.raises(StoreError):
        await session.open("gone")
    assert session.messages == before


async def test_new_begins_another_conversation(store: Store) -> None:
    session = session_of(ScriptedEngine(), store)
    await say(session, "one")
    session.new()
    assert (session.messages, session.conversation) == ((), None)
    await say(session, "two")
    assert [c.title for c in store.list_conversations()] == ["two", "one"]


async def test_token_count_needs_a_model(store: Store) -> None:
    session = session_of(ScriptedEngine(), store)
    assert await session.count_tokens("hi") is None
    async for _ in session.warm_up():
        pass
    assert await session.count_tokens("hi") == 5
    assert session.loaded is not None
