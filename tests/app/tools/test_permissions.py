"""Which rule counts, and where rules come from."""

from pathlib import Path

import pytest

from app.store.conversations import Store
from app.tools.permissions import PermissionRule, Verdict, decide
from app.tools.toolbox import Permissions

ALLOW_ALL = PermissionRule("read_file", "", "allow")
DENY_ALL = PermissionRule("read_file", "", "deny")
ALLOW_HOME = PermissionRule("read_file", "/home/x", "allow")
DENY_HOME = PermissionRule("read_file", "/home/x", "deny")
DENY_PRIVATE = PermissionRule("read_file", "/home/x/private", "deny")
OTHER = PermissionRule("write_file", "", "allow")


@pytest.mark.parametrize(
    ("rules", "folder", "verdict"),
    [
        ([], "/home/x", "ask"),
        ([OTHER], "/home/x", "ask"),
        ([ALLOW_ALL], "/home/x", "allow"),
        ([ALLOW_ALL], "", "allow"),
        ([ALLOW_HOME], "/home/x", "allow"),
        ([ALLOW_HOME], "/home/x/deep/er", "allow"),
        ([ALLOW_HOME], "/home/xy", "ask"),
        ([ALLOW_HOME], "/home", "ask"),
        ([ALLOW_HOME], "", "ask"),
        ([ALLOW_HOME, DENY_PRIVATE], "/home/x/private/a", "deny"),
        ([DENY_PRIVATE, ALLOW_HOME], "/home/x/public", "allow"),
        ([ALLOW_HOME, DENY_ALL], "/home/x", "allow"),
        ([ALLOW_HOME, DENY_ALL], "/etc", "deny"),
        ([ALLOW_ALL, DENY_ALL], "/etc", "deny"),
        ([ALLOW_HOME, DENY_HOME], "/home/x", "deny"),
    ],
)
def test_most_specific_rule_decides(rules: list[PermissionRule], folder: str, verdict: Verdict) -> None:
    assert decide(rules, "read_file", folder) == verdict


def test_call_that_reaches_into_a_denied_folder_is_asked_about() -> None:
    rules = [ALLOW_HOME, DENY_PRIVATE]
    assert decide(rules, "read_file", "/home/x", reaches_below=True) == "ask"
    assert decide(rules, "read_file", "/home/x/public", reaches_below=True) == "allow"
    assert decide(rules, "read_file", "/home/x/private", reaches_below=True) == "deny"


def test_rules_of_this_run_come_before_remembered_ones(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "db")
    store.permissions.remember("read_file", "", "deny")
    assert Permissions(store.permissions).verdict("read_file", "/a") == "deny"
    assert Permissions(store.permissions, [ALLOW_ALL]).verdict("read_file", "/a") == "allow"
    assert Permissions(store.permissions).verdict("clock", "") == "ask"
    assert Permissions(store.permissions, otherwise="deny").verdict("clock", "") == "deny"


def test_without_a_store_decisions_last_for_the_run() -> None:
    permissions = Permissions()
    permissions.remember("clock", "", "allow")
    permissions.remember("clock", "", "deny")
    assert permissions.rules == (PermissionRule("clock", "", "deny"),)
    permissions.revoke("clock", "")
    assert permissions.verdict("clock", "") == "ask"
