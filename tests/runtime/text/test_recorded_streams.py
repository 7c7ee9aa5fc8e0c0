"""Recorded answers of both call styles: the same parts wherever the stream is cut, and nothing of it lost."""

from collections.abc import Iterable, Iterator

import pytest

from runtime.text.output_parser import MalformedCall, OutputParser, Part, Text
from tests.support.recorded_streams import HERMES, SPECIALS, STREAMS, TOOLS, XML, Recorded


def pieces(runs: Iterable[str], cut: int) -> Iterator[tuple[str, str | None]]:
    """What the parser is pushed: texts, cut once at character `cut` of the stream's text, and special tokens."""
    position = 0
    for run in runs:
        if run in SPECIALS:
            yield "", run
            continue
        inside = cut - position
        position += len(run)
        yield from ((text, None) for text in ((run[:inside], run[inside:]) if 0 < inside < len(run) else (run,)))


def parse(recorded: Recorded, pushes: Iterable[tuple[str, str | None]]) -> list[Part]:
    parser = OutputParser(recorded.style, TOOLS, recorded.opens_reasoning)
    parts: list[Part] = []
    for text, special in pushes:
        for part in parser.push(text, special):
            _append(parts, part)
    for part in parser.finish():
        _append(parts, part)
    return parts


def _append(parts: list[Part], part: Part) -> None:
    last = parts[-1] if parts else None
    if isinstance(part, Text) and isinstance(last, Text) and last.channel == part.channel:
        parts[-1] = Text(part.channel, last.text + part.text)
    else:
        parts.append(part)


def test_there_are_enough_of_each() -> None:
    assert len(STREAMS) >= 40
    assert min(len(XML), len(HERMES)) >= 20
    assert len({(recorded.style, recorded.name) for recorded in STREAMS}) == len(STREAMS)


@pytest.mark.parametrize("recorded", STREAMS, ids=lambda recorded: f"{recorded.style}: {recorded.name}")
def test_every_cut_gives_the_recorded_parts(recorded: Recorded) -> None:
    num_characters = sum(len(run) for run in recorded.runs if run not in SPECIALS)
    whole = parse(recorded, pieces(recorded.runs, 0))
    assert len(whole) == len(recorded.parts)
    for found, expected in zip(whole, recorded.parts, strict=True):
        if isinstance(expected, MalformedCall):
            assert isinstance(found, MalformedCall)
            assert found.raw == expected.raw
            assert expected.reason in found.reason
            assert "\n" not in found.reason
        else:
            assert found == expected
    for cut in range(1, num_characters):
        assert parse(recorded, pieces(recorded.runs, cut)) == whole, cut
    by_character = [
        piece for run in recorded.runs for piece in ([("", run)] if run in SPECIALS else [(c, None) for c in run])
    ]
    assert parse(recorded, by_character) == whole


@pytest.mark.parametrize("recorded", STREAMS, ids=lambda recorded: f"{recorded.style}: {recorded.name}")
def test_a_stream_that_ends_anywhere_crashes_nothing(recorded: Recorded) -> None:
    """At the token limit: what was written is text, reasoning, a call, or a malformed call with the raw text."""
    written = [
        piece for run in recorded.runs for piece in ([("", run)] if run in SPECIALS else [(c, None) for c in run])
    ]
    for end in range(len(written)):
        for part in parse(recorded, written[:end]):
            assert not isinstance(part, MalformedCall) or part.raw.startswith("<tool_call>")
