"""Which command lines start a program with plain arguments, and which need a shell."""

import pytest

from app.tools.command_line import parse_command
from app.tools.registry import ToolError


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("ls -la", ("ls", "-la")),
        ("grep 'a b' \"c d\" e\\ f", ("grep", "a b", "c d", "e f")),
        ("echo 'a|b;c&d$e`f`>g<h(*)'", ("echo", "a|b;c&d$e`f`>g<h(*)")),
        ('echo "a|b;c&d>g"', ("echo", "a|b;c&d>g")),
        ("echo a\\;b", ("echo", "a;b")),
        ("find . -name a.txt", ("find", ".", "-name", "a.txt")),
        ("git log --format=%h", ("git", "log", "--format=%h")),
        ("echo a#b c~d", ("echo", "a#b", "c~d")),
    ],
)
def test_plain(line: str, argv: tuple[str, ...]) -> None:
    command = parse_command(line)
    assert (command.argv, command.needs_shell) == (argv, False)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "a | b",
            "a; b",
            "a && b",
            "a & b",
            "a > b",
            "a < b",
            "a $HOME",
            "a $(b)",
            "a `b`",
            "(a)",
            "a\nb",
            "ls *.txt",
        ),
        *(
            'echo "$HOME"',
            'echo "`id`"',
            "ls ~",
            "ls a?",
            "ls [ab]",
            "X=1 a",
            "a # b",
            "cd /",
            ". x",
            "eval a",
            "exec a",
        ),
        *("sh -c id", "/bin/bash -c id", "busybox sh", "zsh", "\\sh -c id", "'sh' -c id", "source x", "export A=b"),
    ],
)
def test_needs_a_shell(line: str) -> None:
    command = parse_command(line)
    assert command.needs_shell
    assert command.argv == ("/bin/sh", "-c", line)


@pytest.mark.parametrize("line", ["", "  ", "a 'b", 'a "b', "a\0b", "a \\"])
def test_means_nothing(line: str) -> None:
    with pytest.raises(ToolError):
        parse_command(line)
