"""History keeps the ids a model generated: where they sit in a rendered conversation, and how many of them fit.

Re-tokenising a text need not give the ids it was generated with, and different ids mean a different prefix. The text
always stays exactly what the template renders: ids are used as far as their text agrees with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.text.detokenize import Detokenizer
from runtime.text.spans import Span
from runtime.text.tokenizer import Tokenizer

Spans = tuple[Span, ...]


@dataclass(frozen=True)
class Place:
    """A point in rendered spans: before character `offset` of span `index`."""

    index: int
    offset: int = 0


@dataclass(frozen=True)
class Reuse:
    """`ids` stand for the rendered text from `start` to `end`."""

    start: Place
    end: Place
    ids: tuple[int, ...]


def find_turns(spans: Spans, header: Spans) -> tuple[int, ...]:
    """Indices of the spans where an assistant turn begins; `header` is what every such turn begins with."""
    if not header or not header[0].is_special:
        return ()
    return tuple(index for index in range(len(spans)) if after_prefix(spans, index, header) is not None)


def after_prefix(spans: Spans, index: int, prefix: Spans) -> Place | None:
    """Where `prefix` ends if the spans from `index` on begin with it, else None."""
    for place, expected in enumerate(prefix):
        if index + place >= len(spans):
            return None
        span = spans[index + place]
        if span == expected:
            continue
        is_last = place == len(prefix) - 1
        if is_last and not expected.is_special and not span.is_special and span.text.startswith(expected.text):
            return Place(index + place, len(expected.text))
        return None
    return Place(index + len(prefix))


def reuse_turn(spans: Spans, index: int, prefixes: Sequence[Spans], ids: Sequence[int], tokenizer: Tokenizer) -> Reuse:
    """The most ids that fit the turn beginning at `index`, over all generation prompts it may have been given."""
    starts = [place for prefix in prefixes if (place := after_prefix(spans, index, prefix)) is not None]
    candidates = [_match(spans, start, ids, tokenizer) for start in starts]
    return max(candidates, key=lambda reuse: len(reuse.ids), default=Reuse(Place(index), Place(index), ()))


def _match(spans: Spans, start: Place, ids: Sequence[int], tokenizer: Tokenizer) -> Reuse:
    place, num_used = start, 0
    while num_used < len(ids):
        name = tokenizer.special_name(ids[num_used])
        if name is not None:
            place = _at_span_end(spans, place)
            if place.index >= len(spans) or spans[place.index] != Span(name, True):
                break
            place, num_used = Place(place.index + 1), num_used + 1
            continue
        run_end = _end_of_run(ids, num_used, tokenizer)
        rest = _rest(spans, place)
        num_fitting, num_characters = _match_run(rest, ids[num_used:run_end], tokenizer)
        place, num_used = Place(place.index, place.offset + num_characters), num_used + num_fitting
        if num_used < run_end:
            break
    return Reuse(start, place, tuple(ids[:num_used]))


def _at_span_end(spans: Spans, place: Place) -> Place:
    """The next span, where `place` is at the end of its own."""
    is_at_end = place.index < len(spans) and place.offset and place.offset == len(spans[place.index].text)
    return Place(place.index + 1) if is_at_end else place


def _end_of_run(ids: Sequence[int], begin: int, tokenizer: Tokenizer) -> int:
    end = begin
    while end < len(ids) and tokenizer.special_name(ids[end]) is None:
        end += 1
    return end


def _rest(spans: Spans, place: Place) -> str:
    if place.index >= len(spans) or spans[place.index].is_special:
        return ""
    return spans[place.index].text[place.offset :]


def _match_run(rest: str, run: Sequence[int], tokenizer: Tokenizer) -> tuple[int, int]:
    """How many tokens of `run` agree with the beginning of `rest`, and how many characters they are.

    A disagreement is backed up to a word's beginning, so that what follows is tokenised as it usually is.
    """
    text = tokenizer.decode(run)
    if rest.startswith(text) and _is_word_border(rest, len(text)):
        return len(run), len(text)
    detokenizer = Detokenizer(tokenizer)
    best, position = (0, 0), 0
    for count, token_id in enumerate(run, start=1):
        piece = detokenizer.push(token_id)
        if not rest.startswith(piece, position):
            break
        position += len(piece)
        if detokenizer.is_whole and _is_word_border(rest, position):
            best = (count, position)
    return best


def _is_word_border(text: str, position: int) -> bool:
    return position == len(text) or text[position].isspace()
