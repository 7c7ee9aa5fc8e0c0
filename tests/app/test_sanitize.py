"""Nothing a terminal acts on passes, everything readable does, and a stream is cleaned as its whole would be."""

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.sanitize import StreamCleaner, clean, clean_line

ANY_TEXT = st.text(st.characters(codec=None)) | st.lists(
    st.sampled_from(
        ["\x1b]52;c;aGk=\x07", "\x1b[31m", "\x9b1m", "\r\n", "\r", "\n", "\u202e", "\ud83d", "\x00", "a", "é", "👩‍🚀"]
    )
).map("".join)
KEPT_FORMATS = {0xAD, 0x200C, 0x200D}


def is_harmless(character: str) -> bool:
    code = ord(character)
    if character in "\n\t" or code in KEPT_FORMATS:
        return True
    if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        return False
    is_noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    reorders = unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    is_mark = (
        code in (0x200E, 0x200F, 0x61C, 0xFFF9, 0xFFFA, 0xFFFB)
        or 0x2060 <= code <= 0x206F
        or 0xE0000 <= code <= 0xE007F
    )
    return not (is_noncharacter or reorders or is_mark or code in (0x200B, 0xFEFF))


@settings(deadline=None)
@given(ANY_TEXT)
def test_nothing_dangerous_passes(text: str) -> None:
    assert all(map(is_harmless, clean(text)))
    assert clean(clean(text)) == clean(text)


def test_every_character_is_either_kept_or_dangerous() -> None:
    for code in range(0x110000):
        character = chr(code)
        if is_harmless(character):
            assert clean(character) == character
        else:
            assert clean(character) in ("", "\n")


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8").filter(is_harmless)))
def test_harmless_text_is_unchanged(text: str) -> None:
    assert clean(text) == text


@settings(deadline=None)
@given(st.lists(ANY_TEXT))
def test_a_stream_is_cleaned_as_its_whole(pieces: list[str]) -> None:
    for split in (pieces, list("".join(pieces))):
        cleaner = StreamCleaner()
        assert "".join(map(cleaner.push, split)) == clean("".join(pieces))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x1b]52;c;aGVsbG8=\x07", "]52;c;aGVsbG8="),
        ("\x1b]8;;http://a.b\x1b\\link\x1b]8;;\x1b\\", "]8;;http://a.b\\link]8;;\\"),
        ("\x9b31mred \x90q\x9c", "31mred q"),
        ("a\x00b\x7fc\x08d", "abcd"),
        ("one\r\ntwo\rthree\x0bfour\x0cfive\x85six\u2028seven", "one\ntwo\nthree\nfour\nfive\nsix\nseven"),
        ("exe.\u202etxt", "exe.txt"),
        ("[/red] [@click=app.quit]x", "[/red] [@click=app.quit]x"),
        ("👩‍🚀 ❤️ 🇩🇪 नि क्‍ष", "👩‍🚀 ❤️ 🇩🇪 नि क्‍ष"),
        ("lone \ud800 surrogate", "lone  surrogate"),
    ],
)
def test_examples(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_a_line_has_no_breaks() -> None:
    assert clean_line(" a\r\nb\tc\x1b]0;title\x07\u2029d\n") == "a b c]0;title d"


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_line_is_one_line(text: str) -> None:
    assert len(clean_line(text).splitlines()) <= 1


@pytest.mark.speed
@pytest.mark.parametrize("unit", ["a", "hello world ", "\x1b[31mred", "héllo 世界 ", "😀 ok ", "\r\n"])
def test_a_megabyte_takes_under_50_ms(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        clean(text)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05
