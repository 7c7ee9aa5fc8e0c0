"""What one chat may call: the tools, and the permissions its user has given so far.

toolbox = ToolBox(registry, Permissions(store.permissions))     # asks, and remembers what it is told to
session = ChatSession(engine, store, settings, model_path, toolbox=toolbox)
"""

from collections.abc import Callable, Iterable

from app.store.database import Arguments, Result
from app.store.permissions import PermissionStore
from app.tools.permissions import Decision, PermissionRule, Verdict, decide
from app.tools.registry import ToolRegistry


class Permissions:
    """Rules given for this run, before those remembered in the store; where none fits, `otherwise`.

    A front end that can't ask passes `otherwise="deny"`. Without a store, decisions are remembered for this run.
    """

    def __init__(
        self,
        store: PermissionStore | None = None,
        rules: Iterable[PermissionRule] = (),
        otherwise: Verdict = "ask",
    ) -> None:
        self._store = store
        self._rules = list(rules)
        self._otherwise = otherwise

    async def run(
        self, call: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """The door for event loops, which must not wait for the store: what a method below gives."""
        if self._store is None:
            return call(*args, **kwargs)
        return await self._store.run(call, *args, **kwargs)

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """All that are remembered, those of this run first. Raises StoreError."""
        stored = self._store.all() if self._store is not None else []
        return (*self._rules, *(PermissionRule(row.permission, row.folder, row.decision) for row in stored))

    def verdict(self, permission: str, folder: str, reaches_below: bool = False) -> Verdict:
        """Raises StoreError: where the rules can't be read nothing is allowed."""
        verdict = decide(self._rules, permission, folder, reaches_below)
        if verdict == "ask":
            verdict = decide(self.rules, permission, folder, reaches_below)
        return self._otherwise if verdict == "ask" else verdict

    def remember(self, permission: str, folder: str, decision: Decision) -> None:
        """Decide for good, in `folder` or everywhere (''). Raises StoreError."""
        if self._store is not None:
            self._store.remember(permission, folder, decision)
        else:
            self._forget(permission, folder)
            self._rules.append(PermissionRule(permission, folder, decision))

    def revoke(self, permission: str, folder: str) -> None:
        """Ask again from now on. Raises StoreError."""
        self._forget(permission, folder)
        if self._store is not None:
            self._store.revoke(permission, folder)

    def _forget(self, permission: str, folder: str) -> None:
        self._rules = [rule for rule in self._rules if (rule.permission, rule.folder) != (permission, folder)]


class ToolBox:
    """Tools and permissions of one chat."""

    def __init__(self, registry: ToolRegistry, permissions: Permissions) -> None:
        self.registry = registry
        self.permissions = permissions
