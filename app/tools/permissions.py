"""Who may do what: rules per tool and folder, and the one that counts. Pure; asking and keeping are done elsewhere.

The most specific folder that holds the call's folder decides, then a rule without a folder; of two equal ones deny
wins. Without a rule the user is asked.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

Decision = Literal["allow", "deny"]
Verdict = Literal["allow", "ask", "deny"]
PermissionScope = Literal["once", "folder", "always"]


@dataclass(frozen=True)
class PermissionRule:
    """`folder` is absolute and holds what lies below it; '' is everywhere."""

    permission: str
    folder: str
    decision: Decision


def decide(rules: Iterable[PermissionRule], permission: str, folder: str) -> Verdict:
    """What the rules say of a call that touches `folder` ('' where it touches none)."""
    fitting = [rule for rule in rules if rule.permission == permission and _holds(rule.folder, folder)]
    if not fitting:
        return "ask"
    depth = max(_depth(rule) for rule in fitting)
    decisions = {rule.decision for rule in fitting if _depth(rule) == depth}
    return "deny" if "deny" in decisions else "allow"


def _holds(rule_folder: str, folder: str) -> bool:
    if not rule_folder:
        return True
    return bool(folder) and PurePath(folder).is_relative_to(rule_folder)


def _depth(rule: PermissionRule) -> int:
    return len(PurePath(rule.folder).parts) if rule.folder else -1
