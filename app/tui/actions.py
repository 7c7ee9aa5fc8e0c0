"""Everything a user can do, once: keys, footer, help screen, command palette and slash commands are read from here.

Holds names and words only; what an action does is the method `action_<name>` of the scope that owns it.
"""

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal["app", "chat", "prompt"]
Group = Literal["Message", "Answer", "Conversation", "Model", "Application"]


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
    is_in_footer: bool = False
    is_in_palette: bool = True
    argument: str = ""
    """What may follow the slash command, in words; empty where nothing may."""

    @property
    def key_text(self) -> str:
        """Keys as a person writes them."""
        return ", ".join(key_name(key) for key in self.keys)


ACTIONS: tuple[Action, ...] = (
    Action("send", "Send", "Send the message; while an answer runs, queue it", "Message", "prompt", ("enter",)),
    Action(
        "newline",
        "New line",
        "Start a new line; a backslash before Enter works in every terminal",
        "Message",
        "prompt",
        ("shift+enter", "ctrl+j", "alt+enter"),
    ),
    Action(
        "older_prompt", "Earlier message", "Bring back what you wrote before, from the first line", "Message", "prompt", ("up",)
    ),
    Action("newer_prompt", "Later message", "Towards the newest, from the last line", "Message", "prompt", ("down",)),
    Action(
        "edit_queued", "Edit queued", "Take the last queued message back into the prompt", "Message", "chat", ("f9",), "unqueue"
    ),
    Action("stop", "Stop", "Stop the answer; what was said stays", "Answer", "chat", ("escape",), "stop", True),
    Action("interrupt", "Interrupt", "Copy a selection, else stop the answer, else clear the prompt", "Answer", "chat", ("ctrl+c",), is_in_palette=False),
    Action("regenerate", "Answer again", "Answer the last message once more", "Answer", "chat", ("ctrl+r",), "retry"),
    Action("copy_answer", "Copy answer", "Copy the last answer", "Answer", "chat", ("ctrl+y",), "copy", True),
    Action("copy_code", "Copy code", "Copy the last code block; again for the one before", "Answer", "chat", ("ctrl+g",), "code"),
    Action("toggle_reasoning", "Fold reasoning", "Show or hide how answers were reasoned", "Answer", "chat", ("f3",), "fold"),
    Action("page_up", "Scroll up", "Read what came before", "Answer", "chat", ("pageup",), is_in_palette=False),
    Action("page_down", "Scroll down", "Towards the newest", "Answer", "chat", ("pagedown",), is_in_palette=False),
    Action("go_to_end", "To the end", "Jump to the newest text and follow it", "Answer", "chat", ("ctrl+end",)),
    Action("new_chat", "New chat", "Start a new conversation", "Conversation", "chat", ("ctrl+n",), "new", True),
    Action(
        "conversations",
        "Chats",
        "Search, open, rename and delete conversations",
        "Conversation",
        "chat",
        ("ctrl+o",),
        "chats",
        True,
        argument="words to search for",
    ),
    Action("models", "Models", "See the models here and choose one", "Model", "chat", ("f2",), "models"),
    Action("toggle_thinking", "Thinking", "Let the model reason first: auto, on, off", "Model", "chat", ("ctrl+t",), "think"),
    Action("toggle_overlap", "Overlap", "Switch the overlap path on or off", "Model", "chat", ("f4",), "overlap"),
    Action("switch_policy", "Slot policy", "Change which expert leaves its slot", "Model", "chat", ("f5",), "policy"),
    Action("settings", "Settings", "Sampling, thinking, slots, theme", "Application", "chat", ("ctrl+s",), "settings", True),
    Action("next_theme", "Theme", "Next colour theme", "Application", "app", ("f8",), "theme"),
    Action("command_palette", "Commands", "Find a command by its name", "Application", "app", ("ctrl+p",), "", True, False),
    Action("show_help", "Help", "Keys, commands and what the figures mean", "Application", "app", ("f1",), "help", True),
    Action("quit", "Quit", "Stop the engine and leave", "Application", "app", ("ctrl+q",), "quit", True),
)

_KEY_NAMES = {"ctrl": "Ctrl", "shift": "Shift", "alt": "Alt", "enter": "Enter", "escape": "Esc", "up": "Up", "down": "Down",
    "pageup": "PgUp", "pagedown": "PgDn", "end": "End"}


def key_name(key: str) -> str:
    """'ctrl+n' as 'Ctrl+N'."""
    return "+".join(_KEY_NAMES.get(part, part.upper()) for part in key.split("+"))


def bindings_of(scope: Scope) -> list[Binding]:
    """Textual's bindings of one scope. Keys of the app go first, so that no text field takes them."""
    return [
        Binding(
            ",".join(action.keys),
            action.name,
            action.label,
            show=action.is_in_footer,
            key_display=key_name(action.keys[0]),
            priority=scope == "app",
        )
        for action in ACTIONS
        if action.scope == scope and action.keys
    ]


def action_of_command(command: str) -> Action | None:
    """The action of a slash command, given without the slash."""
    return next((action for action in ACTIONS if action.command and action.command == command.lower()), None)


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
    if action is not None and (action.argument or not argument.strip()):
        return SlashCommand(action, argument.strip())
    return name if name.isalpha() and not argument else None


def complete_slash(text: str) -> list[Action]:
    """Actions whose command begins like this prompt, for the hint under it."""
    if not text.startswith("/") or " " in text or "\n" in text:
        return []
    return [action for action in ACTIONS if action.command and action.command.startswith(text[1:].lower())]
