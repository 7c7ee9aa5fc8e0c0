"""What a command line asks for: a program with plain arguments, or a shell. Runs nothing."""

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from app.tools.registry import ToolError

_SHELLS = frozenset({"sh", "ash", "bash", "dash", "zsh", "ksh", "mksh", "csh", "tcsh", "fish", "busybox", "rbash"})
_BUILTINS = frozenset({
    *("cd", "export", "source", ".", "alias", "eval", "exec", "set", "unset", "ulimit", "umask", "trap", "exit"),
    *("if", "for", "while", "until", "case", "function", "{", "}", "!", ":", "shift", "readonly", "local", "wait"),
})  # fmt: skip
_ACTIVE = frozenset("|&;<>()$`\n*?[")
"""What a shell acts on outside of quotes."""
_ACTIVE_IN_DOUBLE_QUOTES = frozenset("$`")


@dataclass(frozen=True)
class CommandLine:
    """`argv` is what is started; with a shell, that is the shell."""

    argv: tuple[str, ...]
    needs_shell: bool


def parse_command(line: str) -> CommandLine:
    """Raises ToolError for a line that means nothing."""
    if not line.strip() or "\0" in line:
        raise ToolError("the command is empty")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ToolError(f"the command can't be read: {str(error).lower()}") from None
    if not words:
        raise ToolError("the command is empty")
    if _has_syntax(line) or _is_for_shell(words):
        return CommandLine(("/bin/sh", "-c", line), needs_shell=True)
    return CommandLine(tuple(words), needs_shell=False)


def _is_for_shell(words: list[str]) -> bool:
    program = PurePosixPath(words[0]).name
    return program in _SHELLS or words[0] in _BUILTINS or "=" in words[0]


def _has_syntax(line: str) -> bool:
    """Whether a shell would do more with the line than split it into words."""
    quote = ""
    is_word_start = True
    characters = iter(line)
    for character in characters:
        if quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            next(characters, "")
        elif quote == '"':
            if character in _ACTIVE_IN_DOUBLE_QUOTES:
                return True
            quote = "" if character == '"' else quote
        elif character in "'\"":
            quote = character
        elif character in _ACTIVE or (is_word_start and character in "~#"):
            return True
        is_word_start = not quote and character in " \t"
    return False
