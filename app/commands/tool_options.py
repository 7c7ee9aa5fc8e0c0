"""`--allow`, `--deny` and `--root`: the tools of one question. Nothing here can ask, so nothing else is allowed."""

import argparse
from collections.abc import Iterable

from app.tools.permissions import Decision, PermissionRule
from app.tools.registry import ORDER, ToolRegistry
from app.tools.toolbox import Permissions, ToolBox

ALL, SHELL = "all", "shell"
"""`all` is every tool, but not a shell."""
CHOICES = (*ORDER, SHELL, ALL)


def add_tool_options(parser: argparse.ArgumentParser) -> None:
    """Without any of them the model is offered no tool."""
    tools = parser.add_argument_group("tools (repeatable)", f"TOOL is one of: {', '.join(CHOICES)}")
    tools.add_argument(
        "--allow", action="append", default=[], choices=CHOICES, metavar="TOOL", help="let the model use this tool"
    )
    tools.add_argument(
        "--deny", action="append", default=[], choices=CHOICES, metavar="TOOL", help="refuse each call of this tool"
    )


def make_toolbox(arguments: argparse.Namespace) -> ToolBox | None:
    """The tools that were named; every call that is not allowed is denied, and the model is told."""
    if not arguments.allow and not arguments.deny:
        return None
    # Only now: what tools need is not loaded by a command that uses none.
    from app.tools.built_in import built_in_tools

    rules = [*_rules(arguments.allow, "allow"), *_rules(arguments.deny, "deny")]
    named = {"run_command" if rule.permission == SHELL else rule.permission for rule in rules}
    tools = [tool for tool in built_in_tools() if tool.name in named]
    return ToolBox(ToolRegistry(*tools), Permissions(rules=rules, otherwise="deny"))


def _rules(names: Iterable[str], decision: Decision) -> list[PermissionRule]:
    return [PermissionRule(name, "", decision) for given in names for name in (ORDER if given == ALL else (given,))]
