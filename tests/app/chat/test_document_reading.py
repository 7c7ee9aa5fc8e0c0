"""A document is shown whole where it fits; else the user is told what is shown, and the decision stays."""

import asyncio
from pathlib import Path

import pytest

from app.chat.archive import export_json, import_json
from app.chat.document_reading import without_readings
from app.chat.events import DocumentPlanned, PromptStarted, TurnEnded, TurnEvent, UserMessageStored
from app.chat.session import ChatSession
from app.documents.reading_plan import ReadingPlan
from app.messages import PAGE_BREAK, Attachment, Message, Reading
from app.settings import Settings
from app.store.conversations import Store
from runtime.protocol import CountTokens
from tests.support.scripted_engine import HELLO, ScriptedEngine

PAGES = [f"The keeper of harbour {number} is called Petra{number}. " + "Boats come. " * 90 for number in range(40)]
LARGE = Attachment("harbours.pdf", PAGE_BREAK.join(PAGES), "pages")
SMALL = Attachment("notes.txt", "One line.\nAnother line.")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "hotslot.db")


class RecordingEngine(ScriptedEngine):
    """Notes how much it was made to count."""

    counted_words: tuple[int, ...] = ()

    async def count_tokens(self, request: CountTokens) -> int:
        num_words = await super().count_tokens(request)
        self.counted_words = (*self.counted_words, num_words)
        return num_words


def session_of(store: Store, *, context_tokens: int = 2000) -> tuple[ChatSession, ScriptedEngine]:
    engine = ScriptedEngine(*[HELLO] * 9, context_limit_tokens=context_tokens)
    return ChatSession(engine, store, Settings(), Path("/models/scripted")), engine


async def say(session: ChatSession, text: str, *files: Attachment, **options: str) -> list[TurnEvent]:
    return [event async for event in session.send(text, files, **options)]  # type: ignore[arg-type]


def planned(events: list[TurnEvent]) -> list[tuple[str, str]]:
    return [(event.name, event.mode) for event in events if isinstance(event, DocumentPlanned)]


def end_of(events: list[TurnEvent]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


async def test_what_fits_is_whole_and_said_before_the_prompt(store: Store) -> None:
    session, engine = session_of(store)
    events = await say(session, "What is it?", SMALL)
    kinds = [type(event) for event in events]
    assert kinds.index(UserMessageStored) < kinds.index(DocumentPlanned) < kinds.index(PromptStarted)
    assert planned(events) == [("notes.txt", "whole")]
    plan = next(event for event in events if isinstance(event, DocumentPlanned))
    assert plan.line == "notes.txt: read whole, 30 tokens, 2% of the context (it fits)."
    assert engine.requests[0].messages[-1].content == (
        "File notes.txt:\n```\n[line 1] One line.\n[line 2] Another line.\n```\n\n"
        "Where you use a document, quote it and add the mark of the place, such as [line 12].\n\nWhat is it?"
    )
    assert session.messages[0].attachments[0].reading == Reading("whole")
    assert store.branch(session.messages[0].id) == [session.messages[0]]


async def test_what_does_not_fit_is_passages_that_stay_the_same(store: Store) -> None:
    session, engine = session_of(store)
    events = await say(session, "Who is the keeper of harbour 7?", LARGE)
    assert planned(events) == [("harbours.pdf", "passages")]
    content = engine.requests[0].messages[-1].content
    assert content.startswith("File harbours.pdf (passages):\n```\n[p.")
    assert "[p.8] The keeper of harbour 7 is called Petra7." in content
    assert len(content.split()) < 1500
    await say(session, "Thanks!")
    assert engine.requests[1].messages[0].content == content
    assert engine.requests[1].messages[-1].content == "Thanks!"
    async for _ in session.regenerate():
        pass
    assert engine.requests[2].messages == engine.requests[1].messages
    reopened = ChatSession(engine, store, Settings(), Path("/models/scripted"))
    await reopened.open(session.conversation.id)  # type: ignore[union-attr]
    await say(reopened, "And?")
    assert engine.requests[3].messages[0].content == content


async def test_a_later_question_is_searched_too(store: Store) -> None:
    session, engine = session_of(store, context_tokens=4000)
    await say(session, "Who is the keeper of harbour 7?", LARGE)
    events = await say(session, "And who is Petra23?")
    assert planned(events) == [("harbours.pdf", "passages")]
    assert "is called Petra23." in engine.requests[1].messages[-1].content
    assert engine.requests[1].messages[0] == engine.requests[0].messages[0]
    [why] = [event.why for event in events if isinstance(event, DocumentPlanned)]
    assert why.startswith("searched again: ")
    assert session.documents == session.messages[0].attachments
    follow_up = session.messages[2].attachments[0].reading
    assert follow_up is not None
    assert follow_up.is_follow_up
    events = await say(session, "Say more about Petra23.")
    assert next(event.why for event in events if isinstance(event, DocumentPlanned)).endswith("1 shown before")
    assert store.branch(session.messages[-1].id) == list(session.messages)
    store.check_integrity()


async def test_a_full_context_ends_no_conversation(store: Store) -> None:
    """Passages leave room for the next ones; when none is left, that is said and the question is answered."""
    session, engine = session_of(store)
    await say(session, "Who is the keeper of harbour 7?", LARGE)
    lines = []
    for number in range(8, 16):
        events = await say(session, f"And who is Petra{number}?")
        assert end_of(events).outcome == "stop"
        lines += [event.line for event in events if isinstance(event, DocumentPlanned)]
    assert "is called Petra8." in engine.requests[1].messages[-1].content
    assert "nothing more is shown: harbours.pdf has passages for this question, but there is room for" in lines[-1]
    events = await say(session, "Thanks!")
    assert "nothing more is shown: harbours.pdf has none of the question's words" in str(events)


async def test_an_edited_question_is_decided_anew(store: Store) -> None:
    session, engine = session_of(store)
    await say(session, "Who is the keeper of harbour 7?", LARGE)
    async for _ in session.edit(session.messages[0].id, "Who is Petra31?"):
        pass
    assert "is called Petra31." in engine.requests[1].messages[-1].content
    [document] = without_readings(session.messages[0].attachments)
    assert document == LARGE


async def test_several_documents_share_the_room(store: Store) -> None:
    session, _ = session_of(store)
    other = Attachment("boats.pdf", LARGE.text.replace("Petra", "Olga"), "pages")
    events = await say(session, "Who is the keeper of harbour 7?", LARGE, SMALL, other)
    first, *others = planned(events)
    assert first == ("notes.txt", "whole")
    assert sorted(others) == [("boats.pdf", "passages"), ("harbours.pdf", "passages")]
    assert [document.name for document in session.messages[0].attachments] == ["harbours.pdf", "notes.txt", "boats.pdf"]
    assert end_of(events).outcome == "stop"


async def test_everything_is_read_in_pieces_by_who_can(store: Store) -> None:
    session, engine = session_of(store, context_tokens=4000)
    asked: list[tuple[str, str, int]] = []

    async def read_pieces(document: Attachment, question: str, plan: ReadingPlan) -> str:
        asked.append((document.name, question, len(plan.passages)))
        return "[p.3] Petra2 is a keeper."

    session.read_pieces = read_pieces
    events = await say(session, "List all keepers.", LARGE)
    assert planned(events) == [("harbours.pdf", "all")]
    assert asked == [("harbours.pdf", "List all keepers.", asked[0][2])]
    content = engine.requests[0].messages[-1].content
    assert content.startswith("File harbours.pdf (notes):\n```\n[p.3] Petra2 is a keeper.\n```\n\n")
    assert content.endswith("\n\nList all keepers.")
    assert store.branch(session.messages[0].id) == [session.messages[0]]


async def test_the_choice_is_the_users(store: Store) -> None:
    session, engine = session_of(store)
    events = await say(session, "Which line?", SMALL, reading="passages")
    assert planned(events) == [("notes.txt", "passages")]
    events = await say(session, "Who is Petra7?", LARGE, reading="whole")
    assert end_of(events).outcome == "failed"
    assert "harbours.pdf has" in end_of(events).error
    assert "and there is room for" in end_of(events).error
    assert len(engine.requests) == 1


async def test_cancelling_ends_the_reading(store: Store) -> None:
    session, engine = session_of(store, context_tokens=4000)
    is_reading, is_ended = asyncio.Event(), asyncio.Event()

    async def read_for_ever(document: Attachment, question: str, plan: ReadingPlan) -> str:
        is_reading.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_ended.set()
        return ""

    session.read_pieces = read_for_ever
    turn = asyncio.create_task(say(session, "List all keepers.", LARGE))
    await is_reading.wait()
    await session.cancel()
    assert end_of(await turn).outcome == "cancelled"
    assert is_ended.is_set()
    assert engine.requests == []
    assert not session.is_busy


async def test_the_plan_is_seen_before_sending(store: Store) -> None:
    session, engine = session_of(store)
    assert await session.plan_reading("Who?", [SMALL]) == ()
    await say(session, "hi")
    [small] = await session.plan_reading("Who?", [SMALL])
    [large] = await session.plan_reading("Who is Petra7?", [LARGE])
    assert (small.mode, large.mode) == ("whole", "passages")
    assert large.document_tokens > 2000 > large.num_tokens
    assert 0 < large.context_share < 1
    assert len(engine.requests) == 1
    assert len(session.messages) == 2


async def test_the_plan_counts_what_the_document_adds_to_the_prompt(store: Store) -> None:
    session, _ = session_of(store)
    await say(session, "hi")
    for document in (SMALL, Attachment("one.txt", "One line."), Attachment("a.py", "def f():\n    return 1\n", "code")):
        [plan] = await session.plan_reading("?", [document])
        with_document, without = await session.count_tokens("?", [document]), await session.count_tokens("?")
        assert with_document is not None
        assert without is not None
        assert plan.num_tokens == plan.document_tokens == with_document - without


async def test_documents_of_one_message_count_the_word_on_citing_once(store: Store) -> None:
    session, _ = session_of(store)
    await say(session, "hi")
    pages = Attachment("book.pdf", f"Page one.{PAGE_BREAK}Page two.", "pages")
    files = [SMALL, Attachment("one.txt", "One line."), pages, Attachment("a.py", "def f():\n    return 1\n", "code")]
    plans = await session.plan_reading("?", files)
    with_files, without = await session.count_tokens("?", files), await session.count_tokens("?")
    assert with_files is not None
    assert without is not None
    assert sum(plan.num_tokens for plan in plans) == with_files - without


async def test_a_document_far_too_long_is_counted_by_a_sample(store: Store) -> None:
    engine = RecordingEngine(HELLO, context_limit_tokens=2000)
    session = ChatSession(engine, store, Settings(), Path("/models/scripted"))
    await say(session, "hi")
    words = Attachment("words.txt", "Petra has a boat.\n" * 100_000)
    [plan] = await session.plan_reading("Who is Petra?", [words])
    assert plan.document_tokens == pytest.approx(600_000, rel=0.05)
    assert await session.count_tokens("?", [words, SMALL]) == pytest.approx(600_000, rel=0.05)
    assert max(engine.counted_words) < 20_000


async def test_readings_survive_export_and_import(store: Store) -> None:
    session, _ = session_of(store)
    await say(session, "Who is the keeper of harbour 7?", LARGE)
    assert session.conversation is not None
    imported = import_json(store, export_json(store, session.conversation.id))
    assert store.branch(imported.head_id)[0].attachments == session.messages[0].attachments


async def test_documents_of_a_message_that_failed_are_not_followed_up(store: Store) -> None:
    session, engine = session_of(store)
    await say(session, "Who is Petra7?", LARGE, reading="whole")
    assert session.messages[0].status == "failed"
    events = await say(session, "Who is Petra7?")
    assert planned(events) == []
    assert [type(message) for message in session.messages] == [Message] * 3
    assert engine.requests[0].messages[-1].content == "Who is Petra7?"
