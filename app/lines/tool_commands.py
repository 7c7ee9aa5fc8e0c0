"""Tools on the plain terminal: the question before a call, the tools and their rules, whole results."""

import json

from app.chat.events import PermissionAnswer, PermissionAsked
from app.chat.tool_rules import change_rule
from app.lines.line_base import LineCommands
from app.sanitize import clean, clean_line
from runtime.errors import UsageError

ANSWERS = {
    "y": PermissionAnswer(True),
    "yes": PermissionAnswer(True),
    "n": PermissionAnswer(False),
    "no": PermissionAnswer(False),
    "here": PermissionAnswer(True, "folder"),
    "always": PermissionAnswer(True, "always"),
    "never": PermissionAnswer(False, "always"),
}
DENY = PermissionAnswer(False)


class ToolCommands(LineCommands):
    """Whatever is no clear yes is a no."""

    async def ask_permission(self, asked: PermissionAsked) -> None:
        """Ask the user; where nobody can be asked the call is denied, and that is said."""
        for line in _question_lines(asked):
            self.console.remark(line)
        if not self.state.input.is_terminal:
            self.console.notice(f"{asked.call.name} was denied: nobody can be asked here. /allow {asked.permission}")
            self.session.answer_permission(asked.call_id, DENY)
            return
        here = ", here (always in this folder)" if "folder" in asked.scopes else ""
        self.console.remark(f"Allow it? y (once), n{here}, always, never")
        answer = ANSWERS.get((await self.state.input.answer()).strip().lower())
        if answer is None or answer.scope not in asked.scopes:
            self.console.remark("That is no answer to the question: denied.")
            answer = DENY
        self.session.answer_permission(asked.call_id, answer)

    async def do_tools(self, argument: str) -> None:
        toolset = self.state.toolset
        rules = await toolset.permissions.run(lambda: toolset.permissions.rules)
        risks = toolset.risks
        if not risks:
            self.console.remark("No tools are offered; /set tools on switches them on.")
        for name in [*risks, *dict.fromkeys(rule.permission for rule in rules if rule.permission not in risks)]:
            self.console.print(f"{name}: risk {risks.get(name, 'of a tool not offered now')}")
            for rule in rules:
                if rule.permission == name:
                    where = clean_line(rule.folder) or "everywhere"
                    self.console.print(f"  {'allowed' if rule.decision == 'allow' else 'denied'} {where}")

    async def do_allow_tool(self, words: str) -> None:
        await self._change("allow", words)

    async def do_deny_tool(self, words: str) -> None:
        await self._change("deny", words)

    async def do_revoke_tool(self, words: str) -> None:
        await self._change("revoke", words)

    async def _change(self, change: str, words: str) -> None:
        if not words:
            raise UsageError(f"Which tool? /{change} and its name, and perhaps a folder; /tools lists them.")
        self.console.remark(await change_rule(self.state.toolset, change, words))

    async def do_open_result(self, argument: str) -> None:
        results = [message for message in self.session.messages if message.role == "tool"]
        if not results:
            raise UsageError("No tool has returned anything yet.")
        self.console.print(clean(results[-1].full_result or results[-1].content))


def _question_lines(asked: PermissionAsked) -> list[str]:
    """Exactly what would happen, line by line."""
    lines = [f"The model wants to use {asked.call.name}, which {_RISKS[asked.risk]}:"]
    for name, value in asked.call.arguments.items():
        lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    if asked.folder:
        lines.append(f"  in the folder {asked.folder}")
    if asked.permission != asked.call.name:
        lines.append(f"  this needs the permission {asked.permission}")
    if asked.note:
        lines.append(f"  {asked.note}")
    if asked.diff:
        lines += ["  the change:", *(f"  {line}" for line in clean(asked.diff).split("\n"))]
    return lines


_RISKS = {"none": "touches nothing of yours", "read": "reads files", "write": "writes a file", "run": "runs a program"}
