import pytest
from textual import events
from textual._xterm_parser import XTermParser

from app.actions import ACTIONS, SlashCommand, action_of_command, complete_slash, key_name, parse_slash
from app.tui.app import HotslotApp
from app.tui.bindings import bindings_of
from app.tui.keyboard import teach_terminal
from app.tui.screens.chat import ChatScreen
from app.tui.screens.models import ModelsScreen
from app.tui.widgets.prompt import NEWLINE_KEYS, Prompt


def test_every_action_exists_and_no_key_means_two_things() -> None:
    owners = {"app": HotslotApp, "chat": ChatScreen, "models": ModelsScreen}
    for action in ACTIONS:
        if action.scope in owners:
            assert hasattr(owners[action.scope], f"action_{action.name}"), action.name
        if action.scope == "models" and action.command:
            assert hasattr(ChatScreen, f"action_{action.name}"), action.name
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    commands = [action.command for action in ACTIONS if action.command]
    assert len(commands) == len(set(commands))


def test_no_key_of_the_chat_is_taken_by_the_prompt() -> None:
    taken = {
        key
        for cls in Prompt.__mro__
        for binding in cls.__dict__.get("BINDINGS", ())
        if hasattr(binding, "key")
        for key in binding.key.split(",")
    }
    passed_on = {"ctrl+c", "pageup", "pagedown", "ctrl+y", "f6", "f7"}
    chat_keys = {key for binding in bindings_of("chat") for key in binding.key.split(",")}
    assert chat_keys & taken <= passed_on


def test_slash_commands() -> None:
    assert isinstance(parse_slash("/new"), SlashCommand)
    assert parse_slash("/chats old news") == SlashCommand(parse_slash("/chats").action, "old news")  # type: ignore[union-attr]
    assert parse_slash("/think off") == SlashCommand(parse_slash("/think").action, "off")  # type: ignore[union-attr]
    assert parse_slash("/unknown") == "unknown"
    pull = action_of_command("models pull")
    assert pull is not None
    assert parse_slash("/models pull owner/name") == SlashCommand(pull, "owner/name")
    assert parse_slash("/model  pull  owner/name ") == SlashCommand(pull, "owner/name")
    assert parse_slash("/models pullover") == SlashCommand(parse_slash("/models").action, "pullover")  # type: ignore[union-attr]
    assert parse_slash("/etc/passwd") is None
    assert parse_slash("/new idea for you") is None
    assert parse_slash(" /new") is None
    assert parse_slash("/new\nmore") is None
    assert parse_slash("hello") is None
    assert [action.command for action in complete_slash("/co")] == ["copy", "code"]
    assert [action.command for action in complete_slash("/models p")] == ["models pull", "models pause"]
    assert complete_slash("hello") == []


@pytest.mark.parametrize("sent", ["\x1b\r", "\x1b\n", "\n", "\x1b[13;2u", "\x1b[27;2;13~"])
def test_what_terminals_send_for_a_new_line(sent: str) -> None:
    teach_terminal()
    [event] = list(XTermParser().feed(sent))
    assert isinstance(event, events.Key)
    assert event.key.replace("\r", "enter") in NEWLINE_KEYS


def test_keys_are_named_for_people() -> None:
    assert key_name("ctrl+n") == "Ctrl+N"
    assert key_name("shift+enter") == "Shift+Enter"
    assert key_name("f1") == "F1"
