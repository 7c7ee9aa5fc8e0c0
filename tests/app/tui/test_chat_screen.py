import asyncio
import sqlite3
from pathlib import Path

from textual import events
from textual.widgets import Markdown

from app.store.conversations import Store
from app.tui.widgets.answer_block import AnswerBlock
from app.tui.widgets.code_block import CodeBlock
from app.tui.widgets.message_blocks import NoticeBlock, UserBlock
from app.tui.widgets.reasoning import Reasoning
from app.tui.widgets.tool_card import ToolCard
from runtime.errors import CheckpointError
from tests.app.tui.conftest import GatedEngine, MakeApp, say, screen_text, settle, until_shown
from tests.support.scripted_engine import HELLO, BadCall, Call, Crash, End, Hang, Refuse, Say, ScriptedEngine

CODE = "Look:\n\n```python\nprint(1)\n```\n\nand\n\n```sh\nls -l\n```\n"


def pieces(text: str, size: int = 3) -> tuple[Say, ...]:
    return tuple(Say(text[start : start + size]) for start in range(0, len(text), size))


async def test_a_message_gets_a_streamed_answer_that_is_stored(make_app: MakeApp, store: Store) -> None:
    app = make_app(HELLO)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await say(pilot, "Good morning")
        assert app.chat.transcript.answers[-1].text == "Hello there.\n"
        shown = screen_text(app)
        assert "Good morning" in shown
        assert "Hello there." in shown
        assert "42.0 tok/s" in shown
        assert app.chat.prompt.text == ""
    [conversation] = store.list_conversations()
    assert [message.content for message in store.branch(conversation.head_id)] == ["Good morning", "Hello there.\n"]


async def test_a_side_call_names_the_chat(make_app: MakeApp) -> None:
    engine = ScriptedEngine(HELLO)
    engine.side_scripts = [(Say("Morning greetings"),)]
    app = make_app(engine=engine, names_chats=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await say(pilot, "Good day to you")
        await app.chat.session.side_calls.settle()
        await pilot.pause()
        assert app.chat.prompt.border_title == "Morning greetings"


async def test_reasoning_is_folded_and_opens(make_app: MakeApp) -> None:
    app = make_app(HELLO)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await say(pilot, "Hi")
        assert "Let me think" not in screen_text(app)
        await pilot.press("f3")
        await pilot.pause()
        assert "Let me think." in screen_text(app)
        await pilot.click(Reasoning, offset=(2, 0))
        await pilot.pause()
        assert "Let me think." not in screen_text(app)


async def test_markdown_is_shown_in_blocks_and_source_stays_exact(make_app: MakeApp) -> None:
    text = "# Title\n\nSome *prose*.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n" + CODE
    app = make_app(pieces(text))
    async with app.run_test(size=(100, 50)) as pilot:
        await settle(pilot)
        await say(pilot, "Hi")
        await app.workers.wait_for_complete()
        await pilot.pause()
        answer = app.chat.transcript.answers[-1]
        assert answer.text == text
        assert [block.code for block in answer.query(CodeBlock)] == ["print(1)", "ls -l"]
        assert answer.query("MarkdownTable")
        shown = screen_text(app)
        assert "```" not in shown
        assert "*prose*" not in shown
        assert "print(1)" in shown


async def test_new_line_keys_and_history(make_app: MakeApp) -> None:
    app = make_app(HELLO)
    async with app.run_test() as pilot:
        await settle(pilot)
        prompt = app.chat.prompt
        await pilot.press("a", "shift+enter", "b", "ctrl+j", "c", "alt+enter", "d", "backslash", "enter", "e")
        assert prompt.text == "a\nb\nc\nd\ne"
        await pilot.press("enter")
        await settle(pilot)
        await say(pilot, "second")
        await pilot.press("x", "up")
        assert prompt.text == "second"
        await pilot.press("up")
        assert prompt.text == "a\nb\nc\nd\ne"
        await pilot.press("down", "down")
        assert prompt.text == "x"
        assert [block.text for block in app.chat.query(UserBlock)] == ["a\nb\nc\nd\ne", "second"]


async def test_a_paste_of_many_lines_is_not_sent(make_app: MakeApp) -> None:
    engine = ScriptedEngine(HELLO)
    app = make_app(engine=engine)
    async with app.run_test() as pilot:
        await settle(pilot)
        app.chat.prompt.post_message(events.Paste("one\r\ntwo\x1b[31m\nthree"))
        await pilot.pause()
        assert app.chat.prompt.text == "one\ntwo[31m\nthree"
        assert not engine.requests


async def test_a_megabyte_is_pasted_as_a_label_and_sent_whole(make_app: MakeApp) -> None:
    engine = ScriptedEngine(HELLO)
    app = make_app(engine=engine)
    text = "x" * 1_000_000
    async with app.run_test() as pilot:
        await settle(pilot)
        app.chat.prompt.post_message(events.Paste(text))
        await pilot.press("!", "enter")
        await settle(pilot)
        assert engine.requests[-1].messages[-1].content == text + "!"
        await pilot.press("up")
        assert len(app.chat.prompt.text) < 100


async def test_escape_stops_the_answer_and_the_partial_text_stays(make_app: MakeApp, store: Store) -> None:
    engine = ScriptedEngine((Say("Once upon"), Hang()), HELLO)
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press(*"Tell", "enter")
        while "Once upon" not in screen_text(app):
            await pilot.pause(0.01)
        await pilot.press("escape")
        await settle(pilot)
        assert len(engine.cancelled_ids) == 1
        assert "stopped" in screen_text(app)
        await say(pilot, "Again")
        assert app.chat.transcript.answers[-1].text == "Hello there.\n"
    [conversation] = store.list_conversations()
    statuses = [message.status for message in store.branch(conversation.head_id) if message.role == "assistant"]
    assert statuses == ["cancelled", "complete"]


async def test_a_start_without_progress_says_what_is_waited_for(make_app: MakeApp) -> None:
    engine = GatedEngine(HELLO)
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await until_shown(pilot, "│ starting the engine")
        engine.load_gate.set()
        await settle(pilot)
        assert "starting the engine" not in screen_text(app)


async def test_ctrl_c_stops_and_does_not_quit(make_app: MakeApp) -> None:
    app = make_app((Say("Once"), Hang()))
    async with app.run_test() as pilot:
        await settle(pilot)
        await pilot.press("h", "enter")
        while not app.chat.transcript.answers or not app.chat.transcript.answers[-1].text:
            await pilot.pause(0.01)
        await pilot.press("ctrl+c")
        await settle(pilot)
        await pilot.press("d", "ctrl+c", "ctrl+c")
        assert app.chat.prompt.text == ""
        assert app.is_running


async def test_messages_written_meanwhile_wait_and_are_sent_in_order(make_app: MakeApp) -> None:
    engine = GatedEngine((Say("One"),), (Say("Two"),), (Say("Three"),))
    engine.load_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("1", "enter", "2", "enter", "3", "enter", "4", "enter")
        assert app.chat.queue.texts == ("2", "3", "4")
        await pilot.pause()
        assert "» 3" in screen_text(app)
        await pilot.press("f9")
        assert app.chat.prompt.text == "4"
        app.chat.prompt.text = ""
        engine.end_gate.set()
        await settle(pilot)
        while app.chat.queue.texts:
            await settle(pilot)
        await settle(pilot)
        assert [request.messages[-1].content for request in engine.requests] == ["1", "2", "3"]


async def test_keys_that_come_before_a_message_is_taken_are_the_next_one_s(make_app: MakeApp) -> None:
    """As from a terminal that hung: all of them at once."""
    engine = GatedEngine((Say("One"),), (Say("Two"),))
    engine.load_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for key in ("1", "enter", "2", "enter", "3", "enter", "4"):
            app.chat.prompt.post_message(events.Key(key, None if key == "enter" else key))
        await pilot.pause()
        assert app.chat.queue.texts == ("2", "3")
        assert app.chat.prompt.text == "4"
        assert [block.text for block in app.chat.query(UserBlock)] == ["1"]


async def test_after_a_stop_the_queue_waits_for_the_user(make_app: MakeApp) -> None:
    engine = ScriptedEngine((Say("One"), Hang()), HELLO)
    app = make_app(engine=engine)
    async with app.run_test() as pilot:
        await settle(pilot)
        await pilot.press("1", "enter", "2", "enter", "escape")
        await settle(pilot)
        assert app.chat.queue.texts == ("2",)
        await pilot.press("enter")
        await settle(pilot)
        assert engine.requests[-1].messages[-1].content == "2"


async def test_typing_is_possible_while_the_engine_loads_and_is_sent_after(make_app: MakeApp) -> None:
    engine = GatedEngine(HELLO)
    engine.end_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("h", "i", "enter")
        assert app.chat.queue.texts == ("hi",)
        assert "» hi" in screen_text(app)
        engine.load_gate.set()
        await settle(pilot)
        await settle(pilot)
        assert app.chat.transcript.answers[-1].text == "Hello there.\n"
        assert len(engine.starts) == 1


async def test_a_crash_is_one_line_and_the_next_message_starts_a_new_engine(make_app: MakeApp) -> None:
    engine = ScriptedEngine((Say("Half"), Crash()), HELLO)
    app = make_app(engine=engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await settle(pilot)
        await say(pilot, "One")
        assert "ended unexpectedly (signal 9)" in screen_text(app)
        assert "Half" in screen_text(app)
        await say(pilot, "Two")
        assert app.chat.transcript.answers[-1].text == "Hello there.\n"
        assert len(engine.starts) == 2


async def test_an_engine_that_does_not_load_says_why(make_app: MakeApp) -> None:
    engine = ScriptedEngine(
        HELLO, start_error=CheckpointError("[/red] model.safetensors is truncated; download it again.")
    )
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        assert "[/red] model.safetensors is truncated" in screen_text(app)
        engine.start_error = None
        await say(pilot, "Hi")
        assert app.chat.transcript.answers[-1].text == "Hello there.\n"


async def test_refusals_limits_and_tool_calls_are_shown(make_app: MakeApp) -> None:
    app = make_app(
        (Refuse(),),
        (Say("Cut"), End("length")),
        (Say("Calling."), Call("[b]search", {"q": "[/x]"}), BadCall("<tool_call>{", "bad [json]")),
        HELLO,
    )
    async with app.run_test(size=(100, 50)) as pilot:
        await settle(pilot)
        await say(pilot, "1")
        assert "the context holds 8192" in screen_text(app)
        await say(pilot, "2")
        assert "ended at the token limit" in screen_text(app)
        await say(pilot, "3")
        shown = screen_text(app)
        assert "[b]search" in shown
        assert '[b]search  not run  q="[/x]"' in shown
        assert "bad [json]" in shown
        assert len(app.chat.query(ToolCard)) == 2


async def test_regenerate_replaces_the_answer_on_the_screen(make_app: MakeApp, store: Store) -> None:
    app = make_app((Say("First"),), (Say("Second"),))
    async with app.run_test() as pilot:
        await settle(pilot)
        await pilot.press("ctrl+r")
        await say(pilot, "Q")
        await pilot.press("ctrl+r")
        await settle(pilot)
        assert [answer.text for answer in app.chat.transcript.answers] == ["Second"]
        assert len(app.chat.query(UserBlock)) == 1
    [conversation] = store.list_conversations()
    assert {leaf.content for leaf in store.leaves(conversation.id)} == {"First", "Second"}


async def test_copying_gives_the_stored_text(make_app: MakeApp) -> None:
    app = make_app(pieces(CODE))
    async with app.run_test(size=(100, 40)) as pilot:
        await settle(pilot)
        await pilot.press("ctrl+y", "ctrl+g")
        assert app.clipboard == ""
        await say(pilot, "Q")
        await pilot.press("ctrl+y")
        assert app.clipboard == CODE
        await pilot.press("ctrl+g")
        assert app.clipboard == "ls -l"
        await pilot.press("ctrl+g")
        assert app.clipboard == "print(1)"


async def test_slash_commands_come_from_the_same_table(make_app: MakeApp) -> None:
    engine = ScriptedEngine(HELLO)
    app = make_app(engine=engine)
    async with app.run_test() as pilot:
        await settle(pilot)
        await say(pilot, "Hi")
        await pilot.press(*"/ne", "tab")
        assert app.chat.prompt.text == "/new"
        await pilot.press("enter")
        await pilot.pause()
        assert app.chat.session.conversation is None
        assert not app.chat.query(AnswerBlock)
        await pilot.press(*"/nonsense", "enter")
        await pilot.pause()
        assert len(engine.requests) == 1
        await pilot.press("ctrl+c")
        await say(pilot, "/etc/passwd is a file")
        assert len(engine.requests) == 2


async def test_the_view_follows_the_end_until_the_user_scrolls_up(make_app: MakeApp) -> None:
    lines = "".join(f"line {index}\n\n" for index in range(60))
    app = make_app((Say(lines),), tuple(Say(f"more {index}\n\n", pause_s=0.002) for index in range(60)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await say(pilot, "1")
        transcript = app.chat.transcript
        assert transcript.is_following
        assert transcript.scroll_y > 20
        await pilot.press("2", "enter")
        while "more 10" not in transcript.answers[-1].text:
            await pilot.pause(0.01)
        await pilot.press("pageup")
        await pilot.pause()
        place = transcript.scroll_y
        assert not transcript.is_following
        await settle(pilot)
        assert transcript.scroll_y == place
        await pilot.press("ctrl+end")
        await pilot.pause()
        assert transcript.is_following


async def test_links_open_nothing_by_themselves(make_app: MakeApp) -> None:
    app = make_app((Say("[click](http://example.invalid/') app.quit('x)"),))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await say(pilot, "1")
        await pilot.click(app.chat.query(Markdown).last(), offset=(1, 0))
        await pilot.pause()
        assert app.is_running


async def test_notices_are_shown(make_app: MakeApp) -> None:
    app = make_app(notices=("The settings file was damaged; it is kept as x.corrupt-1.",))
    async with app.run_test(size=(100, 24)) as pilot:
        await settle(pilot)
        assert "kept as x.corrupt-1" in screen_text(app)
        assert app.chat.query(NoticeBlock)


async def test_quitting_in_the_middle_keeps_the_partial_answer(make_app: MakeApp, store: Store) -> None:
    engine = ScriptedEngine((Say("Half of it"), Hang()))
    app = make_app(engine=engine)
    async with app.run_test() as pilot:
        await settle(pilot)
        await pilot.press("q", "enter")
        while not app.chat.transcript.answers or not app.chat.transcript.answers[-1].text:
            await pilot.pause(0.01)
        await pilot.press("ctrl+q")
    # The loop of a real run ends only after the turn's last word to the store.
    while app.chat.session.is_busy:
        await asyncio.sleep(0.01)
    assert not engine.is_running
    [conversation] = store.list_conversations()
    assert store.branch(conversation.head_id)[-1].content == "Half of it"
    assert store.branch(conversation.head_id)[-1].status == "cancelled"


async def test_quitting_asks_about_messages_that_are_not_sent(make_app: MakeApp) -> None:
    engine = GatedEngine(HELLO, HELLO)
    engine.load_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await pilot.press("1", "enter", "2", "enter", "3", "ctrl+q")
        await until_shown(pilot, "2 messages that you wrote are not sent")
        await pilot.press("escape")
        assert app.screen is app.chat
        app.chat.prompt.text = ""
        await pilot.press("ctrl+q")
        await until_shown(pilot, "A message that you wrote is not sent")
        assert not app._exit
        await pilot.press("ctrl+q")
        assert app._exit, "the key leaves when it is pressed once more"


async def test_a_paste_that_spells_the_label_of_another_stays_as_it_is(make_app: MakeApp) -> None:
    engine = ScriptedEngine(HELLO)
    app = make_app(engine=engine)
    async with app.run_test() as pilot:
        await settle(pilot)
        pastes = ["⟦pasted text 2: 300 lines⟧" + "\na" * 300, "b\n" * 299]
        for paste in pastes:
            app.chat.prompt.post_message(events.Paste(paste))
            await pilot.pause()
        assert app.chat.prompt.text == "⟦pasted text 1: 301 lines⟧⟦pasted text 2: 300 lines⟧"
        await pilot.press("enter")
        await settle(pilot)
        assert engine.requests[-1].messages[-1].content == "".join(pastes)


async def test_the_screen_is_there_before_the_store(make_app: MakeApp, tmp_path: Path) -> None:
    path = tmp_path / "held.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    late = Store.open_later(path)
    app = make_app(HELLO, kept_in=late)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause(0.3)
        assert "Write a message" in screen_text(app)
        app.chat.prompt.set_text("Good morning")
        await pilot.press("enter")
        assert app.chat.queue.texts == ("Good morning",)
        other.execute("ROLLBACK")
        other.close()
        await until_shown(pilot, "Hello there.")
        await settle(pilot)
        assert app.chat.transcript.answers[-1].text == "Hello there.\n"
        [conversation] = late.list_conversations()
        assert len(late.branch(conversation.head_id)) == 2


async def test_a_store_that_cannot_be_opened_is_said(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "damaged.db").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    app = make_app(HELLO, kept_in=Store.open_later(tmp_path / "damaged.db"))
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        await until_shown(pilot, "damaged")
        await until_shown(pilot, "This chat is not")
        await say(pilot, "Good morning")
        assert app.chat.transcript.answers[-1].text == "Hello there.\n"
