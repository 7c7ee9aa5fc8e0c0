"""Everything a user can do, once: keys, footer, help screen, command palette and slash commands are read from here.

Holds names and words only; what an action does is the method `action_<name>` of the scope that owns it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Scope = Literal["app", "chat", "prompt", "models"]
"""Whose keys they are. Slash commands belong to the prompt, whatever the scope."""
Group = Literal["Message", "Documents", "Answer", "Conversation", "Tools", "Model", "Models", "Application"]


@dataclass(frozen=True)
class Action:
    """`keys` are Textual key names, the first is the one shown. `command` is the slash command without its slash."""

    name: str
    label: str
    help: str
    group: Group
    scope: Scope
    keys: tuple[str, ...] = ()
    command: str = ""
    footer: str = ""
    """The word in the footer; empty where it isn't shown there."""
    is_in_palette: bool = True
    argument: str = ""
    """What may follow the slash command, in words; empty where nothing may."""
    aliases: tuple[str, ...] = ()
    """Other names of the slash command."""
    opens_screen: bool = False
    """Whether its key opens a screen: what is typed after it is meant for that screen, however late it opens."""
    is_screen_only: bool = False
    """Whether the action has no meaning where nothing is drawn: the line-oriented chat leaves it out."""

    @property
    def key_text(self) -> str:
        """Keys as a person writes them."""
        return ", ".join(key_name(key) for key in self.keys)


def _message(name: str, label: str, help: str, keys: str, scope: Scope = "prompt", **more: Any) -> Action:
    return Action(name, label, help, "Message", scope, tuple(keys.split()), **more)


def _chat(group: Group) -> Callable[..., Action]:
    def make(name: str, label: str, help: str, keys: str = "", command: str = "", **more: Any) -> Action:
        return Action(name, label, help, group, "chat", tuple(keys.split()), command, **more)

    return make


def _models(name: str, label: str, help: str, key: str, command: str = "", **more: Any) -> Action:
    """What the list of models does with the one chosen there, and the prompt with one that is named."""
    argument = "name" if command else ""
    return Action(
        name, label, help, "Models", "models", (key,), command, argument=argument, is_in_palette=False, **more
    )


def _app(name: str, label: str, help: str, keys: str, command: str = "", **more: Any) -> Action:
    return Action(name, label, help, "Application", "app", tuple(keys.split()), command, **more)


_documents = _chat("Documents")
_answer, _conversation, _tools = _chat("Answer"), _chat("Conversation"), _chat("Tools")
_model, _settings = _chat("Model"), _chat("Application")

ACTIONS: tuple[Action, ...] = (
    _message("send", "Send", "Send the message; while an answer runs, queue it", "enter"),
    _message(
        "newline",
        "New line",
        "Start a new line; a backslash before Enter works in every terminal",
        "shift+enter ctrl+j alt+enter",
    ),
    _message("older_prompt", "Earlier message", "Bring back what you wrote before, from the first line", "up"),
    _message("newer_prompt", "Later message", "Towards the newest, from the last line", "down"),
    _message(
        "attach",
        "Attach a file",
        "Send a document with the next message: text, code, HTML, PDF or DOCX",
        "",
        "chat",
        command="attach",
        argument="path",
    ),
    _message("detach", "Detach", "Take back the last attached file", "", "chat", command="detach"),
    _message(
        "edit_queued",
        "Edit queued",
        "Take the last queued message back into the prompt",
        "f9",
        "chat",
        command="unqueue",
    ),
    _message(
        "edit_message",
        "Edit message",
        "Say your last or the marked message in other words",
        "alt+e",
        "chat",
        command="edit",
        argument="#number and text",
    ),
    _documents(
        "reading",
        "How to read",
        "Read documents whole, by passages or all of it in pieces",
        "alt+m",
        "reading",
        argument="auto, whole, passages or all",
    ),
    _documents(
        "documents",
        "Documents",
        "See this chat's documents and how they are read",
        "f7",
        "documents",
        opens_screen=True,
    ),
    _documents(
        "cite", "Open citation", "Read what the answer cites", "alt+c", "cite", argument="number", opens_screen=True
    ),
    _answer("stop", "Stop", "Stop the answer; what was said stays", "escape", "stop", footer="Stop"),
    _answer(
        "interrupt",
        "Interrupt",
        "Copy a selection, else stop the answer, else clear the prompt",
        "ctrl+c",
        is_in_palette=False,
    ),
    _answer(
        "regenerate", "Answer again", "Answer the last message once more", "ctrl+r", "regenerate", aliases=("retry",)
    ),
    _answer("copy_answer", "Copy answer", "Copy the last answer", "ctrl+y", "copy", footer="Copy", is_screen_only=True),
    _answer(
        "copy_code",
        "Copy code",
        "Copy the last code block; again for the one before",
        "ctrl+g",
        "code",
        is_screen_only=True,
    ),
    _answer(
        "toggle_reasoning",
        "Fold reasoning",
        "Show or hide how answers were reasoned",
        "f3",
        "fold",
        is_screen_only=True,
    ),
    _answer("page_up", "Scroll up", "Read what came before", "pageup", is_in_palette=False),
    _answer("page_down", "Scroll down", "Towards the newest", "pagedown", is_in_palette=False),
    _answer("go_to_end", "To the end", "Jump to the newest text and follow it", "ctrl+end"),
    _conversation("new_chat", "New chat", "Start a new conversation", "ctrl+n", "new", footer="New"),
    _conversation(
        "conversations",
        "Chats",
        "Search, open, rename, pin and delete conversations",
        "ctrl+o",
        "chats",
        footer="Chats",
        argument="words to search for",
        aliases=("list", "search"),
        opens_screen=True,
    ),
    _conversation(
        "open_chat",
        "Open chat",
        "Go on with a conversation",
        command="open",
        argument="number or words",
        is_in_palette=False,
    ),
    _conversation("rename_chat", "Rename chat", "Give this conversation a title", command="rename", argument="title"),
    _conversation(
        "delete_chat", "Delete chat", "Delete this conversation", command="delete", argument="number or words"
    ),
    _conversation("pin_chat", "Pin", "List this conversation first", "alt+p", "pin", argument="number or words"),
    _conversation("undo_delete", "Undo deletion", "Bring back what was deleted last", "alt+u", "undo"),
    _conversation("messages", "Messages", "Read the conversation with its numbers", command="messages"),
    _conversation(
        "siblings",
        "Next version",
        "See another version of an answer or message",
        "alt+right",
        "siblings",
        argument="number",
    ),
    _conversation("previous_sibling", "Version before", "See the version before this one", "alt+left"),
    _conversation(
        "fork_chat",
        "Fork",
        "Go on in a new chat from the last or the marked message",
        "alt+k",
        "fork",
        argument="number",
    ),
    _conversation("select_older", "Mark older", "Mark the message before, to edit or fork it", "alt+up"),
    _conversation("select_newer", "Mark newer", "Mark the message after", "alt+down"),
    _conversation("export_chat", "Export", "Write this chat as .md or .json", command="export", argument="path"),
    _conversation("import_chat", "Import", "Read a chat exported as .json", command="import", argument="path"),
    _tools(
        "side_calls",
        "Side calls",
        "See what runs beside the chat",
        "f10",
        "side",
        argument="cancel and number",
        opens_screen=True,
    ),
    _tools("tools", "Tools", "See the tools, and what they may do", "f6", "tools", opens_screen=True),
    _tools("allow_tool", "Allow a tool", "Let a tool run without asking", command="allow", argument="tool and folder"),
    _tools("deny_tool", "Deny a tool", "Refuse a tool without asking", command="deny", argument="tool and folder"),
    _tools("revoke_tool", "Ask again", "Forget a rule about a tool", command="revoke", argument="tool and folder"),
    _tools("open_result", "Whole result", "Read all that the last tool returned", command="result"),
    _model(
        "models",
        "Models",
        "See the models, what fits and what is here; choose one, get one",
        "f2",
        "models",
        argument="name",
        aliases=("model",),
        opens_screen=True,
    ),
    _model("toggle_thinking", "Thinking", "Let the model reason first", "ctrl+t", "think", argument="auto, on or off"),
    _model("toggle_overlap", "Overlap", "Switch the overlap path", "f4", "overlap", argument="on or off"),
    _model(
        "switch_policy", "Slot policy", "Choose which expert leaves its slot", "f5", "policy", argument="rule or lru"
    ),
    _models("pull_model", "Download", "Download a model, go on with it, or try again", "d", "models pull"),
    _models("pause_model", "Pause", "Pause a download; what is here is kept", "p", "models pause"),
    _models("cancel_model", "Cancel", "Give a download up, and what it fetched", "x", "models cancel"),
    _models("verify_model", "Verify", "Check every hash, and fetch what is bad again", "v", "models verify"),
    _models("remove_model", "Delete", "Remove a model from the disk", "delete", "models rm"),
    _models("model_details", "Details", "Read all that is known of a model", "i", "models info"),
    _models("name_model", "Another", "Type a repository of the Hub, or a folder", "n"),
    _settings(
        "settings",
        "Settings",
        "Sampling, thinking, slots, theme",
        "ctrl+s",
        "settings",
        footer="Settings",
        argument="name and value",
        aliases=("set",),
        opens_screen=True,
    ),
    _app("next_theme", "Theme", "Next colour theme", "f8", "theme", is_screen_only=True),
    _app("show_help", "Help", "Keys, commands and what the figures mean", "f1", "help", footer="Help"),
    _app("command_palette", "Commands", "Find a command by its name", "ctrl+p", footer="Commands", is_in_palette=False),
    _app("quit", "Quit", "Stop the engine and leave", "ctrl+q", "quit", footer="Quit"),
)

_KEY_NAMES = {
    "ctrl": "Ctrl",
    "shift": "Shift",
    "alt": "Alt",
    "enter": "Enter",
    "escape": "Esc",
    "up": "Up",
    "down": "Down",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "delete": "Del",
    "end": "End",
}


def key_name(key: str) -> str:
    """'ctrl+n' as 'Ctrl+N'."""
    return "+".join(_KEY_NAMES.get(part, part.upper()) for part in key.split("+"))


def footer_key(key: str) -> str:
    """'ctrl+n' as '^N'."""
    return key_name(key).replace("Ctrl+", "^")


def action_of_command(command: str) -> Action | None:
    """The action of a slash command, given without the slash."""
    name = command.lower()
    return next((action for action in ACTIONS if action.command and name in (action.command, *action.aliases)), None)


@dataclass(frozen=True)
class SlashCommand:
    """A prompt that asks for an action; `argument` is the rest of the line."""

    action: Action
    argument: str


def parse_slash(text: str) -> SlashCommand | str | None:
    """A command, the unknown name of something that can only be meant as one, or None for an ordinary message.

    A path or a sentence that begins with a slash is a message; so is everything of more than one line.
    """
    line = text.strip()
    if not text.startswith("/") or "\n" in line:
        return None
    name, _, argument = line[1:].partition(" ")
    action = action_of_command(name)
    if action is not None:
        # A command of two words, like /models pull.
        second, _, rest = argument.strip().partition(" ")
        closer = action_of_command(f"{action.command} {second}")
        if closer is not None:
            return SlashCommand(closer, rest.strip())
    if action is not None and (action.argument or not argument.strip()):
        return SlashCommand(action, argument.strip())
    return name if name.isalpha() and not argument else None


def complete_slash(text: str) -> list[Action]:
    """Actions whose command begins like this prompt, for the hint under it."""
    if not text.startswith("/") or "\n" in text:
        return []
    return [action for action in ACTIONS if action.command and action.command.startswith(text[1:].lower())]


def line_actions() -> list[Action]:
    """What the line-oriented chat offers, in the order of its help."""
    return [action for action in ACTIONS if action.command and not action.is_screen_only]
