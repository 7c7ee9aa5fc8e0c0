"""What side calls are for, beside titles: long results in short, documents in pieces, and questions aside."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.events import ToolCallEnded, TurnEnded
from app.chat.piece_reading import read_pieces
from app.chat.side_calls import MOST_AT_ONCE_OF_ONE_JOB, SideCalls
from app.chat.summaries import MOST_PARTS, parts_of, summarise
from app.chat.tool_rounds import MAX_RESULT_CHARS
from app.documents.passages import pieces_of
from app.documents.reading_plan import ReadingPlan
from app.errors import SideCallError
from app.messages import PAGE_BREAK, Attachment
from app.store.conversations import Store
from app.tools.given_tools import ask_aside_tool
from runtime.protocol import Failed, Finished, Generate, PromptAccepted, RequestEvent, RequestStats, TextProduced, Usage
from tests.support.scripted_engine import Call, Hang, Refuse, Say, ScriptedEngine
from tests.support.tool_sessions import echo_tool, outcomes, say, session_with


class PieceEngine(ScriptedEngine):
    """Answers side calls by `answers`: the first key that is in the prompt; 'fail' as answer refuses."""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self.answers = answers
        self.num_now = self.num_most = 0

    async def generate(self, request: Generate) -> AsyncGenerator[RequestEvent, None]:
        self.side_requests.append(request)
        self.num_now += 1
        self.num_most = max(self.num_most, self.num_now)
        try:
            yield PromptAccepted(request.request_id, 10, 0)
            await asyncio.sleep(0.001)
            text = next(answer for key, answer in self.answers.items() if key in request.messages[-1].content)
            if text == "fail":
                yield Failed(request.request_id, "no room")
                return
            yield TextProduced(request.request_id, "text", text)
            yield Finished(request.request_id, "stop", Usage(10, 0, 5), RequestStats(), (), text, "", ())
        finally:
            self.num_now -= 1


# ---- summaries


@given(st.text(alphabet="ab \n", max_size=300), st.integers(2, 50))
def test_parts_are_the_whole_text(text: str, part_chars: int) -> None:
    parts = list(parts_of(text, part_chars))
    assert "".join(parts) == text
    assert all(0 < len(part) <= part_chars for part in parts)


async def test_a_summary_has_a_line_for_each_part_and_says_what_it_is() -> None:
    text = "".join(f"Line {number} of the listing.\n" for number in range(600))
    engine = PieceEngine({"Line 0 ": "It\nbegins.", "Line 200 ": "fail", "Line 599 ": "", "": "It goes on."})
    side_calls = SideCalls(engine)
    first, *lines = (await summarise(side_calls, "run_command", text, 100_000)).split("\n")
    assert first == f"[summary of a result of {len(text):,} characters, of which the user has all]"
    assert lines[0] == "- It begins."
    assert lines[1] == "- (a part that could not be read: no room)"
    assert lines[-1] == "- (a part without a summary)"
    assert len(lines) == len(engine.side_requests) == len(list(parts_of(text, 4000)))
    assert engine.side_requests[0].messages[0].content.startswith("Summarise this text.\n\nLine 0 of")
    assert engine.num_most == MOST_AT_ONCE_OF_ONE_JOB
    assert side_calls.calls[0].subject == f"run_command, part 1 of {len(lines)}"
    side_calls.check_integrity()


async def test_what_is_too_long_to_be_read_is_said() -> None:
    engine = PieceEngine({"": "Words."})
    summary = await summarise(SideCalls(engine), "x", "word " * 20_000, 2000)
    assert len(engine.side_requests) == MOST_PARTS
    assert summary.endswith(f"[the last {100_000 - MOST_PARTS * 1000:,} characters were not read]")


@pytest.mark.parametrize("answer", ["fail", ""])
async def test_a_summary_of_nothing_is_an_error(answer: str) -> None:
    with pytest.raises(SideCallError):
        await summarise(SideCalls(PieceEngine({"": answer})), "x", "word " * 5000, 8000)


LONG = "A line of the result.\n" * 1000
DONE = (Say("done"),)


async def test_a_long_result_is_read_in_short_and_kept_in_full() -> None:
    store = Store.in_memory()
    engine = ScriptedEngine((Call("echo", {"text": LONG}),), DONE)
    engine.side_scripts = [(Say("Many lines."),)]
    session = session_with(engine, store=store)
    session.toolbox.permissions.remember("echo", "", "allow")  # type: ignore[union-attr]
    events = await say(session, "go")
    [ended] = [event for event in events if isinstance(event, ToolCallEnded)]
    assert ended.text.startswith("[summary of a result of 22,000 characters")
    assert "- Many lines." in ended.text
    assert ended.full_text == LONG
    result = next(message for message in engine.requests[1].messages if message.role == "tool")
    assert result.content == ended.text
    stored = next(message for message in store.branch(session.messages[-1].id) if message.role == "tool")
    assert (stored.content, stored.full_result) == (ended.text, LONG)


@pytest.mark.parametrize("side_script", [(Refuse(),), ()])
async def test_without_a_summary_the_turn_goes_on_with_the_beginning(side_script: tuple[object, ...]) -> None:
    engine = ScriptedEngine((Call("echo", {"text": LONG}),), DONE)
    engine.side_scripts = [side_script]  # type: ignore[list-item]
    session = session_with(engine)
    events = await say(session, "go")
    [(status, text)] = outcomes(events)
    assert status == "done"
    assert text.startswith(LONG[:MAX_RESULT_CHARS])
    assert "[cut:" in text
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].outcome == "stop"


async def test_stopping_the_turn_stops_its_summaries() -> None:
    engine = ScriptedEngine((Call("echo", {"text": LONG}),), DONE)
    engine.side_scripts = [(Say("x"), Hang())]
    session = session_with(engine)
    turn = asyncio.ensure_future(say(session, "go"))
    while not any(call.state == "running" for call in session.side_calls.calls):
        await asyncio.sleep(0.001)
    await session.cancel()
    events = await turn
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].outcome == "cancelled"
    assert engine._cancels == {}
    session.side_calls.check_integrity()


async def test_a_short_result_is_left_alone() -> None:
    engine = ScriptedEngine((Call("echo", {"text": "short"}),), DONE)
    [ended] = [event for event in await say(session_with(engine), "go") if isinstance(event, ToolCallEnded)]
    assert (ended.text, ended.full_text) == ("short", "")
    assert engine.side_requests == []


# ---- asking aside


async def test_the_model_asks_a_fresh_context() -> None:
    engine = ScriptedEngine((Call("ask_aside", {"question": "Can penguins fly?"}),), DONE)
    engine.side_scripts = [(Say("They can"), Say("not."))]
    session = session_with(engine, echo_tool())
    assert session.toolbox is not None
    session.toolbox.registry.add(ask_aside_tool(session.side_jobs.ask_aside))
    assert outcomes(await say(session, "go")) == [("done", "They cannot.")]
    [request] = engine.side_requests
    assert [(m.role, m.content) for m in request.messages] == [("user", "Can penguins fly?")]
    [call] = session.side_calls.calls
    assert (call.kind, call.subject, call.state) == ("aside", "Can penguins fly?", "done")


@pytest.mark.parametrize("side_script", [(Refuse("no room"),), ()])
async def test_a_question_without_an_answer_is_told_to_the_model(side_script: tuple[object, ...]) -> None:
    engine = ScriptedEngine((Call("ask_aside", {"question": "?"}),), DONE)
    engine.side_scripts = [side_script]  # type: ignore[list-item]
    session = session_with(engine, echo_tool())
    assert session.toolbox is not None
    session.toolbox.registry.add(ask_aside_tool(session.side_jobs.ask_aside))
    events = await say(session, "go")
    [(status, text)] = outcomes(events)
    assert (status, text[:6]) == ("failed", "Error:")
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].outcome == "stop"


# ---- documents in pieces

PAGES = Attachment(
    "report.pdf",
    PAGE_BREAK.join(f"Page {number} says that the colour of box {number} is grey." for number in range(1, 7)),
    "pages",
)


def plan_of(document: Attachment, piece_chars: int = 130) -> ReadingPlan:
    pieces = pieces_of(document, piece_chars)
    assert len(pieces) > 1
    return ReadingPlan("all", pieces, "", 100, 20)


async def test_findings_keep_or_get_their_marks_and_the_rest_is_left_out() -> None:
    engine = PieceEngine(
        {
            "Page 1 ": 'The document says: "Page 2 says that the colour of box 2 is grey."',
            "Page 3 ": "The document does not mention that.",
            "Page 5 ": "Box 6 is grey [p.6]",
        }
    )
    side_calls = SideCalls(engine)
    notes = await read_pieces(side_calls, PAGES, "Which colour?", plan_of(PAGES), "c")
    assert notes.split("\n") == [
        '[p.2] The document says: "Page 2 says that the colour of box 2 is grey."',
        "[p.6] Box 6 is grey",
    ]
    first = engine.side_requests[0]
    assert first.messages[0].content == (
        "File report.pdf:\n```\n[p.1] Page 1 says that the colour of box 1 is grey.\n\n"
        "[p.2] Page 2 says that the colour of box 2 is grey.\n```\n\nWhich colour?"
    )
    assert (first.sampling.max_tokens, first.kind) == (20, "side_call")
    assert [call.subject for call in side_calls.calls] == [
        f"report.pdf, p.{2 * n - 1} to {2 * n} ({n} of 3)" for n in (1, 2, 3)
    ]


async def test_the_words_of_a_finding_count_more_than_its_mark() -> None:
    engine = PieceEngine(
        {
            "Page 1 ": "Page 2 says that the colour of box 2 is grey. [p.1]",
            "Page 3 ": "All of it is grey [p.9], as [p.4] says.",
            "Page 5 ": "It is all about box 6 [p.1].",
        }
    )
    notes = await read_pieces(SideCalls(engine), PAGES, "Which colour?", plan_of(PAGES))
    assert notes.split("\n") == [
        "[p.2] Page 2 says that the colour of box 2 is grey.",
        "[p.4] All of it is grey, as says.",
        "[p.6] It is all about box 6.",
    ]


async def test_a_finding_without_a_quote_is_marked_by_its_words() -> None:
    document = Attachment("notes.txt", "The cat sleeps on the sofa.\n\nThe garden has seven apple trees.\n\nEnd of it.")
    engine = PieceEngine({"": "There are seven trees in the garden."})
    notes = await read_pieces(SideCalls(engine), document, "Trees?", plan_of(document, 90))
    assert notes.split("\n")[0] == "[line 3] There are seven trees in the garden."


async def test_nothing_found_and_nothing_asked() -> None:
    engine = PieceEngine({"": "The text does not say that."})
    notes = await read_pieces(SideCalls(engine), PAGES, "Which?", plan_of(PAGES))
    assert notes == "None of the 3 pieces of the document says anything about this."
    engine = PieceEngine({"": "It is about boxes."})
    notes = await read_pieces(SideCalls(engine), PAGES, " ", plan_of(PAGES))
    assert len(notes.split("\n")) == 3
    assert engine.side_requests[0].messages[0].content.startswith("Summarise this text.\n\n[p.1] Page 1")


async def test_a_piece_that_fails_is_named_and_all_failing_is_an_error() -> None:
    engine = PieceEngine({"Page 3 ": "fail", "": "Grey."})
    notes = await read_pieces(SideCalls(engine), PAGES, "Which?", plan_of(PAGES))
    assert "(p.3 to 4 could not be read: no room)" in notes.split("\n")
    with pytest.raises(SideCallError, match="no room"):
        await read_pieces(SideCalls(PieceEngine({"": "fail"})), PAGES, "Which?", plan_of(PAGES))


async def test_a_document_that_does_not_fit_is_read_by_side_calls() -> None:
    engine = ScriptedEngine((Say("All grey."),), context_limit_tokens=900)
    engine.side_scripts = [(Say("Grey boxes."),)]
    session = session_with(engine)
    text = PAGE_BREAK.join(f"Page {number}. " + "The box is grey. " * 60 for number in range(8))
    document = Attachment("report.pdf", text, "pages")
    events = [event async for event in session.send("List all colours.", [document])]
    assert isinstance(events[-1], TurnEnded)
    assert (events[-1].outcome, events[-1].error) == ("stop", "")
    num_pieces = len(engine.side_requests)
    assert num_pieces > 1
    content = engine.requests[0].messages[-1].content
    assert content.startswith("File report.pdf (notes):\n```\n[p.1] Grey boxes.\n")
    assert content.endswith("such as [p.3].\n\nList all colours.")
    assert content.count("] Grey boxes.") == num_pieces
    assert {call.state for call in session.side_calls.calls} == {"done"}
