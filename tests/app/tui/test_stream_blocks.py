import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tui.stream_blocks import LONG_BLOCK_CHARS, BlockClosed, BlockGrew, BlockOpened, BlockScanner

ANSWER = """# Title
Hello *world*
second line

- item one
- item two
  continued

  still item two
- item three

1. first
   ```python
   def f():
       return 1
   ```
2. second

| a | b |
|---|---|
| 1 | 2 |
after the table

``inline`` code
~~~
tilde ``` inside
~~~
| no table
end
```js
never closed"""


def blocks_of(pieces: list[str]) -> list[tuple[str, str, str, bool]]:
    """(kind, info, text, is_table) of every block; checks that operations come in a legal order."""
    scanner = BlockScanner()
    ops = [op for piece in pieces for op in scanner.push(piece)] + scanner.finish()
    blocks: list[list[object]] = []
    is_open = False
    for op in ops:
        if isinstance(op, BlockOpened):
            assert not is_open
            is_open = True
            blocks.append([op.kind, op.info, "", False])
        elif isinstance(op, BlockGrew):
            assert is_open
            assert op.text
            blocks[-1][2] = str(blocks[-1][2]) + op.text
        else:
            assert isinstance(op, BlockClosed)
            assert is_open
            is_open = False
            blocks[-1][3] = op.is_table
    assert not is_open
    return [tuple(block) for block in blocks]  # type: ignore[misc]


def test_blocks_of_an_answer() -> None:
    assert [(kind, info, text.strip()) for kind, info, text, _ in blocks_of([ANSWER])] == [
        ("prose", "", "# Title"),
        ("prose", "", "Hello *world*\nsecond line"),
        ("prose", "", "- item one"),
        ("prose", "", "- item two\n  continued\n\n  still item two"),
        ("prose", "", "- item three"),
        ("prose", "", "1. first"),
        ("code", "python", "def f():\n    return 1"),
        ("prose", "", "2. second"),
        ("table", "", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("prose", "", "after the table"),
        ("prose", "", "``inline`` code"),
        ("code", "", "tilde ``` inside"),
        ("table", "", "| no table"),
        ("prose", "", "end"),
        ("code", "js", "never closed"),
    ]
    assert [is_table for kind, _, _, is_table in blocks_of([ANSWER]) if kind == "table"] == [True, False]


@pytest.mark.parametrize("seed", range(30))
def test_where_the_pieces_end_does_not_matter(seed: int) -> None:
    chooser = random.Random(seed)
    cuts = [0, *sorted(chooser.sample(range(len(ANSWER)), 40)), len(ANSWER)]
    assert blocks_of([ANSWER[a:b] for a, b in pairwise(cuts)]) == blocks_of([ANSWER])
    assert blocks_of(list(ANSWER)) == blocks_of([ANSWER])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(alphabet="a`~|-#1. \n*", max_size=6), max_size=30))
def test_no_text_is_lost_and_pieces_do_not_matter(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert blocks_of(pieces) == blocks_of([whole])
    shown = "".join(text for _, _, text, _ in blocks_of(pieces))
    assert shown.count("a") >= whole.count("a") - sum(
        line.count("a") for line in whole.split("\n") if line.lstrip().startswith(("```", "~~~"))
    )


def test_a_block_that_outgrows_markdown_goes_on_as_plain_text() -> None:
    blocks = blocks_of(["word " * 10] * (LONG_BLOCK_CHARS // 20))
    assert [kind for kind, *_ in blocks] == ["prose", "plain"]
    assert blocks_of(["x" * 1_000_000 + "\n\nafter"])[-1][2] == "after"
