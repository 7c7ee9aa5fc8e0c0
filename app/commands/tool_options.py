"""`--allow`, `--deny` and `--root`: the tools of one question. Nothing here can ask, so nothing else is allowed."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from app.chat.session import ChatSession
from app.console import Console
from app.tools.document_search import document_search
from app.tools.given_tools import ask_aside_tool, search_document_tool
from app.tools.permissions import Decision, PermissionRule
from app.tools.registry import ORDER, ToolError, ToolRegistry
from app.tools.toolbox import Permissions, ToolBox
from runtime.errors import UsageError

ALL, SHELL = "all", "shell"
"""`all` is every tool, but not a shell."""
CHOICES = (*ORDER, SHELL, ALL)


def add_tool_options(parser: argparse.ArgumentParser) -> None:
    """`ask` offers no tool without any of them; `chat` asks about those that no rule decides."""
    tools = parser.add_argument_group("tools (repeatable)", f"TOOL is one of: {', '.join(CHOICES)}")
    tools.add_argument(
        "--allow", action="append", default=[], choices=CHOICES, metavar="TOOL", help="let the model use this tool"
    )
    tools.add_argument(
        "--deny", action="append", default=[], choices=CHOICES, metavar="TOOL", help="refuse each call of this tool"
    )
    tools.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder tools may work in (default: the current one)",
    )


def make_toolbox(arguments: argparse.Namespace, console: Console) -> ToolBox | None:
    """The tools that were named; every call that is not allowed is denied, and the model is told."""
    if not arguments.allow and not arguments.deny:
        if arguments.root:
            raise UsageError(
                "--root says where tools may work, but none is allowed; add --allow read_file, for example."
            )
        return None
    # Only now: what tools need is not loaded by a command that uses none.
    from app.tools.built_in import built_in_tools
    from app.tools.command_guard import can_confine
    from app.tools.folders import AllowedFolders

    rules = tool_rules(arguments)
    named = {"run_command" if rule.permission == SHELL else rule.permission for rule in rules}
    try:
        folders = AllowedFolders([Path(folder) for folder in arguments.root or ["."]])
    except ToolError as error:
        raise UsageError(f"--root: {error}.") from None
    if {"run_command", SHELL} & {rule.permission for rule in rules if rule.decision == "allow"} and not can_confine():
        console.notice("commands can't be confined here (that takes Landlock): one that runs can touch all your files.")
    tools = [tool for tool in built_in_tools(folders) if tool.name in named]
    return ToolBox(ToolRegistry(*tools), Permissions(rules=rules, otherwise="deny"))


def offer_given_tools(toolbox: ToolBox, session: ChatSession) -> None:
    """Add those of the named tools that only a session can give: they ask a fresh context, and search the documents."""
    named = {rule.permission for rule in toolbox.permissions.rules}
    search = document_search(lambda: session.documents)
    for tool in (ask_aside_tool(session.side_jobs.ask_aside), search_document_tool(search)):
        if tool.name in named:
            toolbox.registry.add(tool)


def tool_rules(arguments: argparse.Namespace) -> tuple[PermissionRule, ...]:
    """What `--allow` and `--deny` decide for this run."""
    return (*_rules(arguments.allow, "allow"), *_rules(arguments.deny, "deny"))


def _rules(names: Iterable[str], decision: Decision) -> list[PermissionRule]:
    return [PermissionRule(name, "", decision) for given in names for name in (ORDER if given == ALL else (given,))]
