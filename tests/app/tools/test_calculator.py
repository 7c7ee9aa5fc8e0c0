"""Sums as people and models write them; nothing else is evaluated, and nothing takes long."""

import time

import pytest

from app.tools.calculator import calculate
from app.tools.registry import ToolError


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("23*19", "437"), ("23 * 19 =", "437"), ("(3 + 4) * 2", "14"), ("0.1 + 0.2", "0.3"), ("100 / 8", "12.5"),
        ("849 * 1.19", "1010.31"), ("1/3", "0.333333333333"), ("2**100", str(2**100)), ("2^10", "1024"),
        ("-7 // 2", "-4"),
        ("7 % 3", "1"), ("sqrt(2)", "1.41421356237"), ("4 × 5 − 6 ÷ 3", "18"), ("2**-2", "0.25"),
        ("pi", "3.14159265359"),
        ("round(2.6)", "3"), ("1e3", "1000"), ("+5", "5"), ("10**20", "1" + "0" * 20), ("4 ** 0.5", "2"),
    ],
)  # fmt: skip
def test_values(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 / 0", "division by zero"), ("0 ** -1", "division by zero"), ("5 % 0", "division by zero"),
        ("9**9**9", "too large"), ("10**5000", "too large"), ("exp(10000)", "too large"), ("1e999", "invalid"),
        ("", "invalid"), ("two plus two", "invalid"), ("1 +", "invalid"), ("True + 1", "invalid"),
        ("(-8) ** 0.5", "invalid"),
        ("__import__('os').system('id')", "invalid"), ("().__class__", "invalid"), ("[1]*9999999", "invalid"),
        ("'a' * 3", "invalid"), ("lambda: 1", "invalid"), ("abs(1, 2)", "invalid"), ("open(1)", "invalid"),
        ("1j", "invalid"),
        ("(" * 900, "invalid"), ("-" * 999 + "1", "invalid"), ("9" * 1001, "invalid"), ("sqrt(-1)", "invalid"),
        ("\0", "invalid"),
    ],
)  # fmt: skip
def test_refusals(expression: str, reason: str) -> None:
    began_s = time.perf_counter()
    with pytest.raises(ToolError, match=reason):
        calculate(expression)
    assert time.perf_counter() - began_s < 1
