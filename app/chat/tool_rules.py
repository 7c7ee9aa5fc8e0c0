"""Rules about tools in a user's words: 'write_file /home/me/notes'."""

import os
from pathlib import Path

from app.chat.toolset import ToolSet
from app.sanitize import clean_line
from app.tools.registry import ORDER
from runtime.errors import UsageError

SHELL = "shell"


async def change_rule(toolset: ToolSet, change: str, words: str) -> str:
    """Allow, deny or revoke: a tool, or 'shell', and perhaps a folder. Returns what holds now, in one line.

    Raises UsageError for an unknown tool, or StoreError.
    """
    name, _, folder = words.strip().partition(" ")
    known = (*dict.fromkeys((*ORDER, *toolset.names)), SHELL)
    if name not in known:
        raise UsageError(f"There is no tool '{clean_line(name)}'; there are {', '.join(known)}.")
    folder = str(Path(os.path.expanduser(folder.strip())).resolve()) if folder.strip() else ""
    permissions = toolset.permissions
    where = f" in {clean_line(folder)}" if folder else ""
    if change == "revoke":
        await permissions.run(permissions.revoke, name, folder)
        return f"{name}{where}: you are asked again."
    decision = "allow" if change == "allow" else "deny"
    await permissions.run(permissions.remember, name, folder, decision)  # type: ignore[arg-type]
    return f"{name}{where}: always {'allowed' if decision == 'allow' else 'denied'}."
