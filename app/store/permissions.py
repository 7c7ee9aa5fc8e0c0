"""What the user has allowed and denied for good, one row per tool and folder. Knows nothing of what the rules mean."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app.store.database import Arguments, Database, Result


@dataclass(frozen=True)
class StoredPermission:
    """`folder` is absolute, '' is everywhere."""

    permission: str
    folder: str
    decision: Literal["allow", "deny"]


class PermissionStore:
    """The remembered decisions of one user. Every failure is a StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(
        self, call: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """The door for event loops: what `call` gives, made on the store's own thread."""
        return await self._database.run(call, *args, **kwargs)

    def all(self) -> list[StoredPermission]:
        """By tool, then folder."""
        rows = self._database.read(
            "SELECT permission, folder, decision FROM tool_permissions ORDER BY permission, folder"
        )
        return [StoredPermission(**dict(row)) for row in rows]

    def remember(self, permission: str, folder: str, decision: Literal["allow", "deny"]) -> None:
        """Decide for good; a former decision about the same is replaced."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO tool_permissions(permission, folder, decision, decided_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT(permission, folder) DO UPDATE SET decision = excluded.decision,"
                " decided_at = excluded.decided_at",
                (permission, folder, decision, time.time()),
            )

    def revoke(self, permission: str, folder: str) -> None:
        """Ask again from now on; what was never decided is fine."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM tool_permissions WHERE permission = ? AND folder = ?", (permission, folder))
