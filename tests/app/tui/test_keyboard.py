"""What a terminal sends becomes keys, and what is pasted becomes text and nothing else."""

import time

from hypothesis import given
from hypothesis import strategies as st
from textual import constants, events

from app.sanitize import clean
from app.tui.keyboard import PASTE_END, PASTE_START, PasteCleaner, PasteSafeParser

PASTED = "a\x1b\x11b \x1b]52;c;aGk=\x07 \x1b[2J\x1b\x1b[A \x9b31m \u202e\r\nc\x00\x1b[200~\td"
ITEMS = st.lists(st.sampled_from([*PASTED, "\x1b[20", "1~", PASTE_START, "\x1b[2", "😀"])).map("".join)


def pieces(text: str, sizes: list[int]) -> list[str]:
    parts = []
    for size in sizes:
        parts.append(text[:size])
        text = text[size:]
    return [part for part in [*parts, text] if part]


def parsed(parts: list[str]) -> list[tuple[str, str]]:
    parser = PasteSafeParser()
    found = []
    for part in parts:
        for event in parser.feed(part):
            if isinstance(event, events.Paste):
                found.append(("paste", event.text))
            elif isinstance(event, events.Key):
                found.append(("key", event.key))
    return found


@given(ITEMS.filter(lambda text: PASTE_END not in text), st.lists(st.integers(1, 9), max_size=40))
def test_a_paste_presses_no_key_however_it_is_cut(text: str, sizes: list[int]) -> None:
    found = parsed(pieces(f"x{PASTE_START}a{text}{PASTE_END}y", sizes))
    assert found == [("key", "x"), ("paste", clean("a" + text)), ("key", "y")]


@given(ITEMS.filter(lambda text: PASTE_START not in text), st.lists(st.integers(1, 9), max_size=40))
def test_what_is_typed_passes_unchanged_and_at_once(text: str, sizes: list[int]) -> None:
    cleaner = PasteCleaner()
    assert all(cleaner.push(part) == part for part in pieces(text, sizes))


def test_the_end_of_the_input_reaches_the_parser() -> None:
    parser = PasteSafeParser()
    assert list(parser.feed("")) == []
    assert parser.is_eof


def test_a_letter_with_alt_is_a_key_and_no_text() -> None:
    parser = PasteSafeParser()
    assert list(parser.feed("\x1be")) == []
    time.sleep(2 * constants.ESCAPE_DELAY)
    [event] = list(parser.tick())
    assert isinstance(event, events.Key)
    assert (event.key, event.character) == ("alt+e", None)
