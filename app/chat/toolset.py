"""The tools of one chat as its settings say: which are offered, and in which folders they work.

A chat that can ask its user is offered all of them; each call is asked about unless a rule decides.
"""

import os
from pathlib import Path

from app.chat.session import ChatSession
from app.settings import Settings
from app.store.conversations import Store
from app.tools.built_in import built_in_tools
from app.tools.document_search import document_search
from app.tools.folders import AllowedFolders
from app.tools.given_tools import ask_aside_tool, search_document_tool
from app.tools.permissions import PermissionRule
from app.tools.registry import ToolRegistry
from app.tools.toolbox import Permissions, ToolBox


class ToolSet:
    """Gives the session its tool box and keeps it as the settings say. `close` lets go of the folders."""

    def __init__(self, session: ChatSession, store: Store, rules: tuple[PermissionRule, ...] = ()) -> None:
        self.permissions = Permissions(store.permissions, rules)
        self._session = session
        self._registry = ToolRegistry()
        self._folders: AllowedFolders | None = None
        session.toolbox = ToolBox(self._registry, self.permissions)

    @property
    def names(self) -> tuple[str, ...]:
        """Tools that are offered."""
        return self._registry.names

    @property
    def risks(self) -> dict[str, str]:
        """What may come of each tool: none, read, write or run."""
        tools = {name: self._registry.get(name) for name in self._registry.names}
        return {name: tool.risk for name, tool in tools.items() if tool is not None}

    def apply(self, settings: Settings) -> None:
        """Offer what these settings say from the next request on; nothing, where they name a folder that can't be used.

        Raises HotslotError naming that folder.
        """
        self._withdraw()
        if not settings.tools:
            return
        self._folders = AllowedFolders(allowed_folders(settings))
        for tool in built_in_tools(self._folders):
            self._registry.add(tool)
        self._registry.add(ask_aside_tool(self._session.side_jobs.ask_aside))

    def note_documents(self, has_documents: bool) -> None:
        """Offer to search the chat's documents only where it has some; to be told before each message."""
        self._registry.remove("search_document")
        if has_documents and self._folders is not None:
            self._registry.add(search_document_tool(document_search(lambda: self._session.documents)))

    def _withdraw(self) -> None:
        for name in self._registry.names:
            self._registry.remove(name)
        if self._folders is not None:
            self._folders.close()
            self._folders = None

    def close(self) -> None:
        """Offer nothing any more; safe to call twice."""
        self._withdraw()


def allowed_folders(settings: Settings) -> list[Path]:
    """The folders tools may work in; the first is where relative paths begin."""
    written = [part.strip() for part in settings.tool_folders.split(os.pathsep)]
    return [Path(os.path.expanduser(part)) for part in written if part] or [Path.cwd()]
