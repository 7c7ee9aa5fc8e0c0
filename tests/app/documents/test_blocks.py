"""Blocks keep every word, name the place it stands at, and make the form of prompt that the demo model was taught."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.context_window import compose_content
from app.documents.blocks import MAX_BLOCK_CHARS, Block, blocks_of
from app.documents.rendering import fenced, shown_text
from app.messages import Attachment, DocumentKind, Reading

WRAPPED = """\
# Title

The harbour of Vellmar opens at seven in the morning and closes
at nine in the evening. It was founded by Petra Lund in 1907, who
owned two boats.

- a first point that is long enough to look like a line of prose
- a second point that is long enough to look like another of them

```
a line of code in the fence that is as long as the others
and another one that must not be put together with the first
```
Short.
"""
TEXTS = st.text(st.sampled_from("aZ .\n\ue00c-#`|é日"), max_size=400)


def test_wrapped_prose_is_put_together_and_named_by_its_first_line() -> None:
    assert blocks_of(Attachment("a.md", WRAPPED)) == (
        Block(1, "# Title"),
        Block(
            3,
            "The harbour of Vellmar opens at seven in the morning and closes at nine in the evening. It was founded by"
            " Petra Lund in 1907, who owned two boats.",
        ),
        Block(7, "- a first point that is long enough to look like a line of prose"),
        Block(8, "- a second point that is long enough to look like another of them"),
        Block(10, "```"),
        Block(11, "a line of code in the fence that is as long as the others"),
        Block(12, "and another one that must not be put together with the first"),
        Block(13, "```"),
        Block(14, "Short."),
    )


def test_sentences_on_lines_of_their_own_stay_so() -> None:
    lines = [f"The harbour number {number} opens at seven in the morning on all days." for number in range(4)]
    assert [block.text for block in blocks_of(Attachment("a.txt", "\n".join(lines)))] == lines


def test_a_log_keeps_its_lines() -> None:
    lines = [f"2026-01-01 12:{number:04} the server says that nothing happened again" for number in range(100)]
    assert [block.text for block in blocks_of(Attachment("log.txt", "\n".join(lines)))] == lines


def test_sixteen_megabytes_take_seconds() -> None:
    started = time.monotonic()
    assert len(blocks_of(Attachment("a", "word " * 3_300_000))) > 8000
    assert len(blocks_of(Attachment("b", "a line that says no more than the one before it\n" * 330_000))) == 330_000
    assert time.monotonic() - started < 15


def test_code_has_every_line_and_its_indentation() -> None:
    document = Attachment("a.py", "def f():\n\n    return 1\n", "code")
    assert shown_text(document) == "[line 1] def f():\n\n[line 3]     return 1"


def test_the_form_that_the_demo_model_was_taught() -> None:
    pages = Attachment("report.pdf", "First page.\ue00cSecond page.", "pages")
    lines = Attachment("notes.txt", "One.\n\nTwo.\n")
    assert compose_content("Who?", [pages]) == (
        "File report.pdf:\n```\n[p.1] First page.\n\n[p.2] Second page.\n```\n\nWho?"
    )
    assert compose_content("Who?", [lines]) == "File notes.txt:\n```\n[line 1] One.\n[line 3] Two.\n```\n\nWho?"


def test_one_line_needs_no_mark() -> None:
    assert shown_text(Attachment("a.txt", "just this\n")) == "just this"
    assert shown_text(Attachment("a.txt", "\n \n")) == ""
    assert shown_text(Attachment("a.pdf", "just this", "pages")) == "[p.1] just this"


def test_paragraphs_of_a_page_share_a_mark_while_they_are_short() -> None:
    page = "\n".join(["x" * 250] * 5)
    assert [len(block.text) for block in blocks_of(Attachment("a", f"{page}\ue00c\ue00cend", "pages"))] == [
        501,
        501,
        250,
        3,
    ]
    assert [block.place for block in blocks_of(Attachment("a", f"{page}\ue00c\ue00cend", "pages"))] == [1, 1, 1, 3]


@pytest.mark.parametrize("text", ["x" * 9000, "Some words. " * 900, "word " * 2000, "文。" * 4000])
def test_long_lines_are_divided_where_a_reader_would(text: str) -> None:
    blocks = blocks_of(Attachment("a", text))
    assert max(len(block.text) for block in blocks) <= MAX_BLOCK_CHARS
    assert {block.place for block in blocks} == {1}
    assert "".join(block.text for block in blocks).replace(" ", "") == text.replace(" ", "")
    if "." in text:
        assert all(block.text.endswith(".") for block in blocks)


@given(TEXTS, st.sampled_from(["text", "code", "pages"]))
def test_no_word_is_lost_and_places_ascend(text: str, kind: DocumentKind) -> None:
    if kind != "pages":
        text = text.replace("\ue00c", "")
    blocks = blocks_of(Attachment("a", text, kind))
    assert re.sub(r"\s", "", "".join(block.text for block in blocks)) == re.sub("[\\s\ue00c]", "", text)
    places = [block.place for block in blocks]
    assert places == sorted(places)
    units = text.split("\ue00c" if kind == "pages" else "\n")
    first_blocks = {block.place: block for block in reversed(blocks)}
    for place, block in first_blocks.items():
        assert block.text.strip()[:1] == units[place - 1].strip()[:1]


@given(TEXTS)
def test_passages_of_everything_are_the_whole(text: str) -> None:
    document = Attachment("a", text, "pages")
    num_blocks = len(blocks_of(document))
    chosen = Attachment("a", text, "pages", Reading("passages", ((0, num_blocks),)))
    assert shown_text(chosen) == shown_text(document)


def test_passages_and_notes_are_called_what_they_are() -> None:
    text = "One.\ue00cTwo.\ue00cThree."
    passages = Attachment("a.pdf", text, "pages", Reading("passages", ((0, 1), (2, 3))))
    notes = Attachment("a.pdf", text, "pages", Reading("all", notes="[p.2] Two."))
    assert fenced(passages) == "File a.pdf (passages):\n```\n[p.1] One.\n\n[p.3] Three.\n```"
    assert fenced(notes) == "File a.pdf (notes):\n```\n[p.2] Two.\n```"
