"""Who may do what: rules per tool and folder, and the one that counts. Pure; asking and keeping are done elsewhere.

The most specific folder that holds the call's folder decides, then a rule without a folder; of two equal ones deny
wins. Without a rule the user is asked; so is he where a call that is allowed reaches into a folder that is denied.
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


def decide(rules: Iterable[PermissionRule], permission: str, folder: str, reaches_below: bool = False) -> Verdict:
    """What the rules say of a call that touches `folder` ('' where it touches none), or all below it too."""
    own = [rule for rule in rules if rule.permission == permission]
    fitting = [rule for rule in own if _holds(rule.folder, folder)]
    if not fitting:
        return "ask"
    depth = max(_depth(rule) for rule in fitting)
    decisions = {rule.decision for rule in fitting if _depth(rule) == depth}
    if "deny" in decisions:
        return "deny"
    denied_below = any(rule.decision == "deny" and _is_below(rule.folder, folder) for rule in own)
    return "ask" if reaches_below and denied_below else "allow"


def _holds(rule_folder: str, folder: str) -> bool:
    if not rule_folder:
        return True
    return bool(folder) and PurePath(folder).is_relative_to(rule_folder)


def _is_below(rule_folder: str, folder: str) -> bool:
    return bool(rule_folder and folder) and rule_folder != folder and PurePath(rule_folder).is_relative_to(folder)


def _depth(rule: PermissionRule) -> int:
    return len(PurePath(rule.folder).parts) if rule.folder else -1
