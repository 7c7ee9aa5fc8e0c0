import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from app.tui.wrapping import wrap_line


@given(st.text(alphabet="ab 漢é👍🏽\u200d", max_size=80), st.integers(2, 20))
def test_rows_cover_the_line_and_fit(line: str, width: int) -> None:
    rows = wrap_line(line, width)
    assert rows[0][0] == 0
    assert rows[-1][1] == len(line)
    assert all(a[1] == b[0] for a, b in pairwise(rows))
    if line.isascii():
        assert all(cell_len(line[start:end].rstrip()) <= width for start, end in rows)


def test_breaks_after_spaces() -> None:
    line = "the quick brown fox"
    assert [line[start:end] for start, end in wrap_line(line, 10)] == ["the quick ", "brown fox"]


@pytest.mark.parametrize("line", ["x" * 1_000_000, "word " * 200_000, "漢字" * 200_000])
def test_a_megabyte_takes_no_time_to_speak_of(line: str) -> None:
    started = time.perf_counter()
    wrap_line(line, 80)
    assert time.perf_counter() - started < 5
