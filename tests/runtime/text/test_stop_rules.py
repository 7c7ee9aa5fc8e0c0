"""A stop text ends the answer wherever the pieces are cut, and nothing else is withheld."""

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.text.stop_rules import StopResult, StopRules

LETTERS = st.text("abc", max_size=12)


def whole_answer(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The promise, character by character, from the definition."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if done:
            stop = max(done, key=len)
            return text[: end - len(stop)], stop
    return text, None


def stream(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    rules, shown = StopRules([], stops), ""
    for piece in pieces:
        result = rules.push(piece)
        shown += result.text
        if result.stopped_by:
            return shown, result.stopped_by
    return shown + rules.flush(), None


@settings(deadline=None)
@given(st.lists(LETTERS), st.lists(st.text("abc", max_size=4), max_size=3))
def test_every_split_stops_at_the_same_place(pieces: list[str], stops: list[str]) -> None:
    expected = whole_answer("".join(pieces), stops)
    assert stream(pieces, stops) == expected
    assert stream(["".join(pieces)], stops) == expected
    assert stream(list("".join(pieces)), stops) == expected


@settings(deadline=None)
@given(st.lists(LETTERS, min_size=1), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_only_the_beginning_of_a_stop_text_is_held(pieces: list[str], stops: list[str]) -> None:
    rules, pushed, shown = StopRules([], stops), "", ""
    for piece in pieces:
        result = rules.push(piece)
        pushed, shown = pushed + piece, shown + result.text
        if result.stopped_by:
            return
        held = pushed[len(shown) :]
        assert pushed.startswith(shown)
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def test_without_stop_texts_everything_passes_at_once() -> None:
    rules = StopRules([7], [])
    assert rules.push("anything") == StopResult("anything")
    assert rules.is_stop_id(7)
    assert not rules.is_stop_id(8)
