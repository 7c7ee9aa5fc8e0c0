"""Calls run and their results go back; denied, unknown, unfit, unreadable and endless ones never break the chat."""

import asyncio
from pathlib import Path

import pytest

from app.chat.events import (
    NoticeShown,
    PermissionAnswer,
    PermissionAsked,
    ToolCallEnded,
    ToolCallShown,
    ToolCallStarted,
    TurnEnded,
    TurnEvent,
)
from app.chat.session import ChatSession
from app.chat.tool_rounds import (
    CANCELLED,
    DENIED,
    MAX_CALLS_A_ROUND,
    MAX_FRUITLESS_ROUNDS,
    MAX_RESULT_CHARS,
    MAX_ROUNDS,
    MAX_SAME_CALLS,
)
from app.errors import StoreError
from app.store.conversations import Store
from app.tools.calculator import calculator
from app.tools.registry import Arguments, Scope, Tool, ToolError, text_schema
from runtime.protocol import ToolCall
from runtime.text.output_parser import CLOSE_CALL, OPEN_CALL, MalformedCall, OutputParser
from runtime.text.output_parser import Call as ParsedCall
from runtime.text.tool_call_syntax import ToolStyle
from tests.support.scripted_engine import BadCall, Call, Crash, End, Hang, Refuse, Say, ScriptedEngine
from tests.support.tool_sessions import echo_tool, outcomes, say, session_with

DONE = (Say("Done."),)


def ends(events: list[TurnEvent]) -> list[TurnEnded]:
    return [event for event in events if isinstance(event, TurnEnded)]


def roles(session: ChatSession) -> list[str]:
    return [message.role for message in session.messages]


async def test_result_goes_back_to_the_model() -> None:
    engine = ScriptedEngine((Say("Let me see."), Call("calculator", {"expression": "23*19"})), (Say("It is 437."),))
    session = session_with(engine, calculator())
    events = await say(session, "what is 23*19?")
    kinds = [type(event) for event in events if isinstance(event, ToolCallShown | ToolCallStarted | ToolCallEnded)]
    assert kinds == [ToolCallShown, ToolCallStarted, ToolCallEnded]
    assert len({event.call_id for event in events if isinstance(event, ToolCallShown | ToolCallEnded)}) == 1
    assert outcomes(events) == [("done", "437")]
    first, second = engine.requests
    assert [tool.name for tool in first.tools] == ["calculator"]
    assert second.tools == first.tools
    asked, called, result = second.messages
    assert (asked.role, called.role, result.role) == ("user", "assistant", "tool")
    assert called.tool_calls == (ToolCall("calculator", {"expression": "23*19"}),)
    assert (called.content, result.content) == ("Let me see.", "437")
    (end,) = ends(events)
    assert (end.outcome, end.message_id) == ("stop", session.messages[-1].id)
    assert end.usage.completion_tokens == 2
    assert roles(session) == ["user", "assistant", "tool", "assistant"]
    assert (session.messages[2].tool_name, session.messages[2].tool_status) == ("calculator", "done")


async def test_turn_with_tools_is_stored_and_reopened(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "db")
    script = (Call("echo", {"text": "a"}), BadCall("<tool_call>x", "no function")), DONE
    session = session_with(ScriptedEngine(*script), store=store, otherwise="ask")
    await say(session, "go", lambda _: PermissionAnswer(True, "always"))
    assert session.conversation is not None
    engine = ScriptedEngine(DONE)
    again = ChatSession(engine, store, session.settings, Path("/m"))
    await again.open(session.conversation.id)
    assert again.messages == session.messages
    await say(again, "and?")
    shown = [(message.role, message.content) for message in engine.requests[0].messages]
    assert shown == [
        ("user", "go"),
        ("assistant", "<tool_call>x"),
        ("tool", "a"),
        ("tool", "Error: the call can't be read: no function"),
        ("assistant", "Done."),
        ("user", "and?"),
    ]


async def test_without_toolbox_nothing_is_offered_and_nothing_runs() -> None:
    engine = ScriptedEngine((Call("echo", {"text": "a"}),))
    session = session_with(engine)
    session.toolbox = None
    events = await say(session, "go")
    assert engine.requests[0].tools == ()
    assert len(engine.requests) == 1
    assert not outcomes(events)
    assert ends(events)[0].outcome == "tool_calls"


async def test_permission_is_asked_with_exactly_what_runs() -> None:
    ran: list[Arguments] = []

    async def run(arguments: Arguments, _: Scope) -> str:
        ran.append(arguments)
        return "ok"

    tool = Tool(text_schema("echo", "Echo.", text="The text"), "run", run)
    engine = ScriptedEngine((Call("echo", {"text": "rm \u202e\x1b[2J\u200bx"}),), DONE)
    session = session_with(engine, tool, otherwise="ask")
    asked: list[PermissionAsked] = []
    events = await say(session, "go", lambda event: asked.append(event) or PermissionAnswer(True))  # type: ignore[func-returns-value]
    assert asked[0].call.arguments == ran[0] == {"text": "rm [2Jx"}
    assert (asked[0].permission, asked[0].risk, asked[0].scopes) == ("echo", "run", ("once", "always"))
    assert events.index(asked[0]) < [type(event) for event in events].index(ToolCallStarted)


@pytest.mark.parametrize(
    ("answer", "num_questions"),
    [
        (PermissionAnswer(True), 2),
        (PermissionAnswer(False), 2),
        (PermissionAnswer(True, "always"), 1),
        (PermissionAnswer(False, "always"), 1),
    ],
)
async def test_answers_are_remembered_as_told(tmp_path: Path, answer: PermissionAnswer, num_questions: int) -> None:
    store = Store.open(tmp_path / "db")
    asked: list[PermissionAsked] = []
    texts: list[str] = []
    for _ in range(2):  # Two chats: what is remembered outlives the first.
        session = session_with(ScriptedEngine((Call("echo", {"text": "a"}),), DONE), otherwise="ask", store=store)
        events = await say(session, "go", lambda event: asked.append(event) or answer)  # type: ignore[func-returns-value]
        texts += [text for _, text in outcomes(events)]
        assert ends(events)[0].outcome == "stop"
    assert len(asked) == num_questions
    assert texts == ["a" if answer.is_allowed else DENIED] * 2
    assert session.toolbox is not None
    session.toolbox.permissions.revoke("echo", "")
    assert session.toolbox.permissions.verdict("echo", "") == "ask"


async def test_denied_call_is_told_to_the_model() -> None:
    engine = ScriptedEngine((Call("echo", {"text": "a"}),), (Say("I was not allowed to."),))
    session = session_with(engine, otherwise="deny")
    events = await say(session, "go")
    assert outcomes(events) == [("denied", DENIED)]
    assert not [event for event in events if isinstance(event, ToolCallStarted | PermissionAsked)]
    assert engine.requests[1].messages[-1].content == DENIED
    assert ends(events)[0].outcome == "stop"


async def test_same_call_for_ever_is_stopped() -> None:
    runs = 0

    async def run(_: Arguments, __: Scope) -> str:
        nonlocal runs
        runs += 1
        return "again"

    engine = ScriptedEngine((Call("echo", {"text": "a"}),))
    session = session_with(engine, Tool(text_schema("echo", "Echo.", text="The text"), "none", run))
    events = await say(session, "go")
    assert runs == MAX_SAME_CALLS
    assert len(engine.requests) == MAX_SAME_CALLS + MAX_FRUITLESS_ROUNDS + 1
    assert "times already" in outcomes(events)[-1][1]
    assert [event.text for event in events if isinstance(event, NoticeShown)]
    assert len(ends(events)) == 1
    engine.scripts = [DONE]
    assert ends(await say(session, "and now?"))[0].outcome == "stop"


async def test_ever_new_calls_are_stopped() -> None:
    engine = ScriptedEngine(*((Call("echo", {"text": str(number)}),) for number in range(100)))
    session = session_with(engine)
    events = await say(session, "go")
    statuses = [status for status, _ in outcomes(events)]
    assert statuses == ["done"] * MAX_ROUNDS + ["rejected"] * (MAX_FRUITLESS_ROUNDS + 1)
    assert "answer with what you have" in outcomes(events)[-1][1]
    assert len(ends(events)) == 1


async def test_many_calls_at_once_are_bounded() -> None:
    engine = ScriptedEngine(tuple(Call("echo", {"text": str(number)}) for number in range(50)), DONE)
    events = await say(session_with(engine), "go")
    assert [status for status, _ in outcomes(events)].count("done") == MAX_CALLS_A_ROUND
    assert len(outcomes(events)) == 50
    assert len(engine.requests[1].messages) == 52


MALFORMED: list[BadCall | Call] = [
    *(BadCall(f"<tool_call>{raw}", reason) for raw, reason in (
        ("", "empty"), ("{", "not JSON"), ("[]", "not an object"), ("null", "no name"), ("<function=>", "no name"),
        ("<function=echo>", "not closed"), ("\x1b[31m", "escape"), ("<|im_end|>", "special"), ("</think>", "special"),
        ("<tool_call><tool_call>", "another call begins inside the call"), ("x" * 100_000, "huge"), ("\ud800", "bad"),
        ("{" * 5000, "too deeply nested"), ('{"name": 1}', "no name"), ("<parameter=a>", "text"), ("\0", "NUL"),
        ('{"name": "echo", "name": "echo"}', "given twice"), ("\u202e", "bidi"), ("\r\n" * 50, "breaks"),
    )),
    *(Call(name, {"text": "a"}) for name in ("", "nope", "ECHO", "echo()", "../echo", "<|im_end|>", "x" * 9999, "\0")),
    *(Call("echo", arguments) for arguments in (
        {}, {"text": 1}, {"text": None}, {"text": []}, {"text": {}}, {"text": True}, {"text": 1e300}, {"Text": "a"},
        {"text": "a", "more": "b"}, {"": ""}, {"<|im_end|>": "a"}, {"text": [[[[["deep"]]]]]}, {"\0": "\0"},
    )),
]  # fmt: skip


async def test_forty_kinds_of_malformed_calls_never_end_the_conversation() -> None:
    assert len(MALFORMED) >= 40
    engine = ScriptedEngine(DONE)
    session = session_with(engine)
    for bad in MALFORMED:
        engine.scripts, num_before = [(Say("Hm."), bad)], len(engine.requests)
        events = await say(session, "go")
        assert len(ends(events)) == 1
        assert ends(events)[0].outcome in ("stop", "tool_calls"), bad
        # Told twice, then the turn ends.
        assert len(engine.requests) - num_before == MAX_FRUITLESS_ROUNDS + 1, bad
        results = [message for message in engine.requests[-1].messages if message.role == "tool"]
        assert results[-1].content.startswith("Error: ")
        assert "\n" not in results[-1].content
        engine.scripts = [(bad,), (Call("echo", {"text": "right"}),), DONE]
        events = await say(session, "again")
        assert ends(events)[0].outcome == "stop"
        assert outcomes(events)[-1] == ("done", "right")
        session.new()


async def test_tool_that_fails_or_breaks_is_told_to_the_model() -> None:
    async def run(_: Arguments, __: Scope) -> str:
        raise ToolError("the disk is\x1b[31m full\nand on fire")

    engine = ScriptedEngine((Call("echo", {"text": "a"}),), DONE)
    session = session_with(engine, Tool(text_schema("echo", "Echo.", text="The text"), "none", run))
    events = await say(session, "go")
    assert outcomes(events) == [("failed", "Error: the disk is[31m full and on fire")]
    assert ends(events)[0].outcome == "stop"


async def test_unforeseen_error_of_a_tool_is_a_result_too() -> None:
    async def run(_: Arguments, __: Scope) -> str:
        raise KeyError("bug")

    session = session_with(
        ScriptedEngine((Call("echo", {"text": "a"}),), DONE),
        Tool(text_schema("echo", "Echo.", text="The text"), "none", run),
    )
    events = await say(session, "go")
    assert outcomes(events) == [("failed", "Error: the tool broke (KeyError)")]
    assert ends(events)[0].outcome == "stop"


async def test_result_is_cleaned_and_cut_visibly() -> None:
    hostile = "a\x1b]52;c;aGk=\x07\x9b31m\u202e\0b\r\nc"
    engine = ScriptedEngine(
        (Call("echo", {"text": hostile}),), (Call("echo", {"text": "x" * (MAX_RESULT_CHARS + 5)}),), DONE
    )
    events = await say(session_with(engine), "go")
    (_, first), (_, second) = outcomes(events)
    assert first == "a]52;c;aGk=31mb\nc"
    assert second.endswith(f"[cut: {MAX_RESULT_CHARS} of {MAX_RESULT_CHARS + 5} characters are shown]")


async def test_long_result_is_shortened_where_that_is_possible() -> None:
    async def shorten(call: ToolCall, text: str) -> str:
        return f"{call.name}: {len(text)}"

    engine = ScriptedEngine((Call("echo", {"text": "x" * (MAX_RESULT_CHARS + 1)}),), DONE)
    session = session_with(engine)
    session.shorten_result = shorten
    assert outcomes(await say(session, "go")) == [("done", f"echo: {MAX_RESULT_CHARS + 1}")]


class Slow:
    """A tool that waits for ever and notes that it was stopped."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.started = asyncio.Event()

    def tool(self) -> Tool:
        return Tool(text_schema("slow", "Wait."), "run", self.run)

    async def run(self, _: Arguments, __: Scope) -> str:
        self.started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.is_stopped = True
        return ""


async def test_cancel_while_a_tool_runs() -> None:
    slow = Slow()
    session = session_with(ScriptedEngine((Call("slow"), Call("echo", {"text": "b"})), DONE), slow.tool(), echo_tool())
    turn = asyncio.create_task(say(session, "go"))
    await slow.started.wait()
    await session.cancel()
    events = await asyncio.wait_for(turn, 5)
    assert slow.is_stopped
    assert outcomes(events) == [("cancelled", CANCELLED)] * 2
    assert ends(events)[0].outcome == "cancelled"
    assert roles(session) == ["user", "assistant", "tool", "tool"]
    assert ends(await say(session, "go on"))[0].outcome == "stop"


async def test_cancel_while_permission_is_asked() -> None:
    session = session_with(ScriptedEngine((Call("echo", {"text": "a"}),), DONE), otherwise="ask")
    events: list[TurnEvent] = []
    async for event in session.send("go"):
        events.append(event)
        if isinstance(event, PermissionAsked):
            await session.cancel()
            session.answer_permission(event.call_id, PermissionAnswer(True))
    assert outcomes(events) == [("cancelled", CANCELLED)]
    assert ends(events)[0].outcome == "cancelled"


async def test_cancel_while_the_model_writes_calls_runs_none() -> None:
    session = session_with(ScriptedEngine((Call("echo", {"text": "a"}), Hang()), DONE))
    events: list[TurnEvent] = []
    async for event in session.send("go"):
        events.append(event)
        if isinstance(event, ToolCallShown):
            await session.cancel()
    assert outcomes(events) == [("cancelled", CANCELLED)]
    assert ends(events)[0].outcome == "cancelled"


async def test_abandoned_turn_stops_its_tool() -> None:
    slow = Slow()
    session = session_with(ScriptedEngine((Call("slow"),), DONE), slow.tool())
    turn = asyncio.create_task(say(session, "go"))
    await slow.started.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await asyncio.sleep(0)
    assert slow.is_stopped
    assert not session.is_busy


async def test_answer_cut_in_the_middle_of_a_call_is_not_sent_back() -> None:
    engine = ScriptedEngine((BadCall("<tool_call>{", "the answer ends inside the call"), End("length")), DONE)
    events = await say(session_with(engine), "go")
    assert len(engine.requests) == 1
    assert ends(events)[0].outcome == "length"


@pytest.mark.parametrize("failing", [Crash(), Refuse("The prompt has 9000 tokens but the context holds 8192.")])
async def test_failure_after_a_result_leaves_a_usable_chat(failing: Crash | Refuse) -> None:
    engine = ScriptedEngine((Call("echo", {"text": "long"}),), (failing,), DONE)
    session = session_with(engine)
    events = await say(session, "go")
    assert ends(events)[0].outcome == "failed"
    assert ends(await say(session, "go on"))[0].outcome == "stop"
    assert [message.content for message in engine.requests[-1].messages if message.role == "tool"] == [
        "Error: the result could not be read"
    ]


async def test_regenerate_answers_the_users_message_again() -> None:
    engine = ScriptedEngine((Call("echo", {"text": "a"}),), DONE, (Say("Otherwise."),))
    session = session_with(engine)
    await say(session, "go")
    async for _ in session.regenerate():
        pass
    assert roles(session) == ["user", "assistant"]
    assert len(engine.requests[-1].messages) == 1


XML = (
    "", "\n", "text", "<function=echo>", "<function=>\n</function>", "<function=echo>\n</function>",
    "<function=echo>\n<parameter=text>\nx\n</function>", "<function=echo>\n<parameter=>\nx\n</parameter>\n</function>",
    "<function=echo>\n<parameter=text>\nx\n</parameter>\n<parameter=text>\ny\n</parameter>\n</function>",
    "<function=echo>\nx\n</function>", "<function=nope>\n</function>",
    "<function=echo>\n<parameter=other>\nx\n</parameter>\n</function>",
    "<function=echo>\n<parameter=text>\nx\n</parameter>\n</function>\nmore",
    "</function>", "<parameter=text>x</parameter>",
    '{"name": "echo", "arguments": {"text": "x"}}', "<function=echo\n>", "<function=" + "e" * 10_000 + ">\n</function>",
    "<function=echo>" * 200, "\0\x1b[2J\u202e",
)  # fmt: skip
HERMES = (
    "{", "[]", "null", "1", '"echo"', "{}", '{"name": ""}', '{"name": null}', '{"name": ["echo"]}', '{"name": "echo"}',
    '{"name": "echo", "arguments": 1}', '{"name": "echo", "arguments": []}', '{"name": "echo", "arguments": "{"}',
    '{"name": "echo", "parameters": {}}', '{"name": "echo", "arguments": {"text": NaN}}', "{'name': 'echo'}",
    '{"name": "echo", "arguments": {"text": "x"}', '{"name": "echo", "name": "echo"}',
    '{"name": "nope", "arguments": {}}', '{"name": "echo", "arguments": ' + "[" * 5000, "<function=echo>\n</function>",
    '{"name": "echo", "arguments": {"text": 1e999}}',
)  # fmt: skip


@pytest.mark.parametrize(("style", "bodies"), [("xml", XML), ("hermes", HERMES)])
async def test_what_the_engine_makes_of_bad_calls_never_ends_the_conversation(
    style: ToolStyle, bodies: tuple[str, ...]
) -> None:
    """The same as a model's text goes through the engine's own reading of calls."""
    schema = echo_tool().schema
    engine = ScriptedEngine(DONE)
    session = session_with(engine)
    for body in bodies:
        parser = OutputParser(style, [schema], opens_reasoning=False)
        parts = [*parser.push("", OPEN_CALL), *parser.push(body), *parser.push("", CLOSE_CALL), *parser.finish()]
        (part,) = parts
        step = BadCall(part.raw, part.reason) if isinstance(part, MalformedCall) else None
        step = Call(part.call.name, part.call.arguments) if isinstance(part, ParsedCall) else step
        assert step is not None
        engine.scripts = [(step,), DONE]
        events = await say(session, "go")
        assert ends(events)[0].outcome == "stop"
        error = engine.requests[-1].messages[-1]
        assert (error.role, error.content[:7]) == ("tool", "Error: "), body
    assert len(XML) + len(HERMES) > 40


async def test_decision_that_can_not_be_kept_holds_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(tmp_path / "db")
    session = session_with(ScriptedEngine((Call("echo", {"text": "a"}),), DONE), otherwise="ask", store=store)
    assert session.toolbox is not None

    def fail(*_: object) -> None:
        raise StoreError("The disk is full; free some space.")

    monkeypatch.setattr(session.toolbox.permissions, "remember", fail)
    events = await say(session, "go", lambda _: PermissionAnswer(True, "always"))
    assert outcomes(events) == [("done", "a")]
    assert "The disk is full; free some space. This decision holds once." in [
        event.text for event in events if isinstance(event, NoticeShown)
    ]
