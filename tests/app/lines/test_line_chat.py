"""A script of lines through `hotslot chat`: messages, commands, and what goes to which stream."""

import io
from pathlib import Path

import huggingface_hub.constants
import pytest

from app.actions import line_actions
from app.engine import ProgressCallback
from app.lines.line_input import LineInput
from app.locations import DEMO_MODEL, Locations, asset_path
from app.messages import Message
from app.settings import SETTING_FIELDS, Settings
from app.settings_file import SettingsFile
from app.store.conversations import Store
from runtime.downloads.places import ModelPlaces
from runtime.errors import CheckpointError
from runtime.options import EngineOptions
from runtime.protocol import Loaded
from tests.app.lines.conftest import RunLines
from tests.support.hub_server import COMMIT, Repository, running_hub
from tests.support.scripted_engine import HELLO, BadCall, Call, Crash, End, Refuse, Say, ScriptedEngine
from tests.support.small_repository import REPO_ID, small_model

HOSTILE = "a\x1b]52;c;aGk=\x07b\x9b31mc\u202ed\0e[/red]"


async def test_answers_go_to_stdout_and_everything_else_to_stderr(run_lines: RunLines) -> None:
    said = await run_lines("Good morning", scripts=(HELLO,))
    assert (said.out, said.status) == ("Hello there.\n", 0)
    assert said.err.splitlines() == [
        "Loading the model… 22%",
        "scripted is ready.",
        "Reasoning:",
        "Let me think.",
        "Answer:",
    ]


async def test_lines_are_messages_of_one_conversation(run_lines: RunLines, store: Store) -> None:
    said = await run_lines("one", "", "   ", "/etc/hosts is a file", "two \\", "lines", scripts=((Say("ok"),),))
    asked = [request.messages[-1].content for request in said.engine.requests]
    assert asked == ["one", "/etc/hosts is a file", "two \nlines"]
    [conversation] = store.list_conversations()
    assert len(store.branch(conversation.head_id)) == 6


async def test_help_has_every_command_that_works_here(run_lines: RunLines) -> None:
    said = await run_lines("/help", "hi", "/help")
    for action in line_actions():
        assert f"/{action.command}" in said.out
    assert "/fold" not in said.out
    assert "Slot hit rate" in said.out


async def test_what_can_not_be_done_is_one_line_and_the_script_goes_on(run_lines: RunLines) -> None:
    mistakes = ("/nope", "/fold", "/open", "/open 7", "/open gone", "/attach", "/attach /no/such", "/detach", "/rename")
    said = await run_lines(*mistakes, "/set nothing 1", "/set temperature hot", "/regenerate", "/model gone", "hi")
    assert said.out == "Hello there.\n"
    notices = [line for line in said.err.splitlines() if line.startswith("hotslot: ")]
    assert len(notices) == len(mistakes) + 4
    assert said.status == 0


async def test_conversations_are_listed_found_opened_renamed_and_deleted(run_lines: RunLines, store: Store) -> None:
    said = await run_lines(
        "About cats", "/new", "About dogs", "/rename Hounds", "/list", "/search cats", "/open 1",
        "/pin", "/delete", "/undo", "/open 1", "/delete", "/list",
        scripts=((Say("They purr."),), (Say("They bark."),)),
    )  # fmt: skip
    assert "1. Hounds (open)\n2. About cats\n" in said.out
    assert "1. About cats\n   " in said.out
    assert "You: About cats\nscripted: They purr.\n" in said.out
    assert [conversation.title for conversation in store.list_conversations()] == ["Hounds"]


async def test_a_list_that_is_not_complete_says_so(run_lines: RunLines, store: Store) -> None:
    for number in range(31):
        chat = store.create_conversation("m", f"chat {number}")
        store.append_message(Message(chat.id, None, "user", "go"))
    said = await run_lines("/list", "/search chat 3")
    assert said.err.count("Only the first 30 are listed; /search and other words find the rest.") == 1


async def test_undo_reaches_what_an_earlier_run_deleted(run_lines: RunLines, store: Store) -> None:
    await run_lines("About cats", "/delete", scripts=((Say("They purr."),),))
    said = await run_lines("/undo", "/undo")
    assert "It is back: About cats" in said.err
    assert "hotslot: There is no deleted chat to bring back." in said.err
    assert len(store.list_conversations()) == 1


async def test_files_go_with_the_next_message_only(run_lines: RunLines, tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("inside")
    (tmp_path / "c.txt").write_text("other")
    attached = [f"/attach '{tmp_path}/a b.txt'", f"/attach {tmp_path}/a b.txt", f"/attach {tmp_path}/c.txt"]
    said = await run_lines(*attached, "/detach", "read", "again")
    assert said.err.count("a b.txt is attached already; it is sent once.") == 1
    first, second = (request.messages[-1].content for request in said.engine.requests)
    assert (first.count("inside"), first.count("other")) == (1, 0)
    assert second == "again"


async def test_answering_again_makes_a_branch(run_lines: RunLines, store: Store) -> None:
    said = await run_lines("go", "/retry", scripts=((Say("one"),), (Say("two"),)))
    assert said.out == "one\ntwo\n"
    [conversation] = store.list_conversations()
    assert {leaf.content for leaf in store.leaves(conversation.id)} == {"one", "two"}


async def test_settings_are_shown_changed_and_kept(run_lines: RunLines, locations: Locations) -> None:
    said = await run_lines(
        "/settings", "/set temperature 0", "/set Top-k 5", "/think off", "/overlap off", "/set seed -"
    )
    for field in SETTING_FIELDS:
        assert f"{field.name} = " in said.out
    settings, _ = SettingsFile(locations.config_file).load()
    kept = (settings.temperature, settings.top_k, settings.thinking, settings.overlap, settings.seed)
    assert kept == (0.0, 5, "off", False, None)
    assert "temperature = 0.0" in said.err


async def test_a_settings_file_damaged_meanwhile_is_told(run_lines: RunLines, locations: Locations) -> None:
    locations.config_file.parent.mkdir(parents=True, exist_ok=True)
    locations.config_file.write_bytes(b"top_k = ")
    said = await run_lines("/overlap off")
    assert "hotslot: The settings file was damaged; the old file is kept as" in said.err


async def test_every_end_of_an_answer_is_told(run_lines: RunLines) -> None:
    said = await run_lines(
        "a", "b", "c", "d", scripts=((Refuse("Too long."),), (Say("x"), End("length")), (Say("y"), Crash()), HELLO)
    )
    assert said.out == "x\ny\nHello there.\n"
    assert "hotslot: Too long.\n" in said.err
    assert "is not complete" in said.err
    assert "ended unexpectedly" in said.err


async def test_hostile_text_is_clean_on_both_streams(run_lines: RunLines) -> None:
    script = (Say(HOSTILE, is_reasoning=True), Say(HOSTILE), Call(HOSTILE, {"x": HOSTILE}), BadCall(HOSTILE, HOSTILE))
    said = await run_lines(
        HOSTILE.replace("\0", ""), f"/rename {HOSTILE}", "/list", f"/open {HOSTILE}", scripts=(script,)
    )
    assert not set("\x1b\x07\x9b\u202e\0") & set(said.out + said.err)
    assert "[/red]" in said.out


async def test_a_line_that_is_not_utf8_is_read_and_told() -> None:
    told: list[str] = []
    typed = LineInput(told.append, io.BytesIO(b"caf\xe9\n\xff\x00\n"))
    assert await typed.read() == "café"
    assert await typed.read() == ""
    assert await typed.read() is None
    assert len(told) == 2


async def test_nobody_to_ask_means_no_and_rules_decide(run_lines: RunLines, store: Store) -> None:
    call = (Call("calculator", {"expression": "23*19"}),)
    said = await run_lines(
        "a", "/allow calculator", "b", "/result", "/tools", "/revoke calculator", "/tools", "/deny nothing",
        scripts=(call, (Say("No."),), call, (Say("437."),)), settings=Settings(),
    )  # fmt: skip
    assert "calculator denied: The user did not allow this call." in said.err
    assert "hotslot: calculator was denied: nobody can be asked here." in said.err
    assert "calculator done: 437" in said.err
    assert said.out.startswith("No.\n437.\n437\n")
    assert said.out.count("  allowed everywhere") == 1
    assert "There is no tool 'nothing'" in said.err


async def test_edits_versions_and_forks(run_lines: RunLines, store: Store) -> None:
    said = await run_lines(
        "one", "two", "/edit other two", "/siblings", "/siblings 1", "/edit #1 other one", "/siblings #1 1",
        "/fork 2", "/messages", "/fork 9", "/siblings 7", "/edit",
        scripts=tuple((Say(f"Answer {number}."),) for number in range(1, 8)),
    )  # fmt: skip
    assert said.out.startswith("Answer 1.\nAnswer 2.\nAnswer 3.\n")
    assert [message.content for message in said.session.messages] == ["one", "Answer 1."]
    assert said.out.endswith("1. You: one\n\n2. scripted: Answer 1.\n")
    assert "There is no message 9" in said.err
    assert len(store.list_conversations()) == 2


async def test_chats_as_files(run_lines: RunLines, store: Store, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    said = await run_lines(
        "go", f"/export {file}", f"/export {file}", "/new", "/export", f"/import {file}", "/import x"
    )
    assert str(file) in said.out
    assert "exists already" in said.err
    assert len(store.list_conversations()) == 2
    assert [message.content for message in said.session.messages] == ["go", "Hello there.\n"]


async def test_documents_are_read_and_cited(run_lines: RunLines, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("The mill is old.\n\nIt has a red roof.\n")
    said = await run_lines(
        "/reading whole", f"/attach {tmp_path}/notes.txt", "/documents", "What roof?", "/documents", "/cite", "/cite 2",
        "/reading sideways", scripts=((Say("A red one [line 3]."),),),
    )  # fmt: skip
    assert "notes.txt: 37 characters, for the next message" in said.out
    assert "notes.txt: 37 characters, shown: whole" in said.out
    assert said.out.endswith("notes.txt, line 3:\nIt has a red roof.\n")
    assert "has 1 of them" in said.err


async def test_side_calls_are_listed(run_lines: RunLines) -> None:
    said = await run_lines("hi", "/side", "/side cancel 3", "/side cancel")
    assert "No side calls yet." in said.err
    assert said.err.count("There is no side call") == 2


async def test_models_are_listed_fetched_checked_and_removed(
    run_lines: RunLines, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The suite is offline by default; this Hub is on the loopback.
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with running_hub() as hub:
        hub.repositories[REPO_ID] = Repository(small_model())
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.endpoint)
        said = await run_lines(
            "/models", "/models pull", "/models pull nothing", f"/models pull {REPO_ID}", f"/models pull {REPO_ID}",
            f"/models verify {REPO_ID}", f"/models info {REPO_ID}", f"/models rm {REPO_ID}",
            f"/models rm {REPO_ID} yes", "/models pause demo", "/models demo", "hi",
        )  # fmt: skip
    assert "demo (fits, here, 47 MiB)" in said.out
    assert "qwen3.5-122b (?, not here, size not known)" in said.out
    assert f"repository  {REPO_ID} at {COMMIT}" in said.out
    for line in (
        "hotslot: /models pull takes the name of a model; /models lists them",
        "hotslot: There is no model 'nothing'",
        f"{REPO_ID}: asking the Hub what there is",
        f"{REPO_ID}: complete and checked, ",
        f"hotslot: {REPO_ID}: it is complete; verify it to be sure.",
        f"{REPO_ID}: every file is right",
        f"Then write: /models rm {REPO_ID} yes",
        f"{REPO_ID}: removed, ",
        "hotslot: demo: it was not downloaded by Hotslot",
        "demo answers from now on.",
    ):
        assert line in said.err, said.err
    assert not ModelPlaces.of(locations.models_dir, REPO_ID).folder.exists()
    assert said.engine.starts[-1].model_path == asset_path(DEMO_MODEL)
    assert said.out.endswith("Hello there.\n")


async def test_a_model_that_cannot_be_loaded_leaves_the_former(run_lines: RunLines, locations: Locations) -> None:
    class Refusing(ScriptedEngine):
        async def start(self, options: EngineOptions, on_progress: ProgressCallback | None = None) -> Loaded:
            if options.model_path == asset_path(DEMO_MODEL):
                raise CheckpointError("demo: a tensor is missing; download it again")
            return await super().start(options, on_progress)

    said = await run_lines("/models demo", "hi", engine=Refusing(), settings=Settings(tools=False, model="former"))
    assert "hotslot: demo: a tensor is missing; download it again\n" in said.err
    assert "demo was not loaded; former stays.\n" in said.err
    assert said.out == "Hello there.\n"
    assert SettingsFile(locations.config_file).load()[0].model == Settings().model
