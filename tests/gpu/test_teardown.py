"""Decode ends in any order without a crash: what a GPU still holds is freed late, and not as it was made."""

import subprocess
import sys

import pytest

from tests.support.teardown import ORDERS


@pytest.mark.parametrize("order", ORDERS)
def test_ends_in_any_order(order: str) -> None:
    """In a process of its own, which a fault would end."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.teardown", order]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
