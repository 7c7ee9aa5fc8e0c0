"""Tells a template's own special tokens from the same spelling in somebody's text.

Before rendering, `SpellingGuard.protect` breaks every spelling in the content with a noncharacter; after rendering,
`SpellingGuard.split` cuts the text at the unbroken ones, which only the template can have written, and mends the rest.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.errors import RequestError

_NONCHARACTERS = tuple(map(chr, range(0xFDD0, 0xFDF0)))


@dataclass(frozen=True)
class Span:
    """A run of plain text, or one special token placed by the template."""

    text: str
    is_special: bool = False


class SpellingGuard:
    """`spellings` are those of the special tokens; one character alone can't be broken and is never special here."""

    def __init__(self, spellings: Iterable[str]) -> None:
        by_length = sorted((text for text in spellings if len(text) > 1), key=len, reverse=True)
        either = "|".join(map(re.escape, by_length)) or r"(?!)"
        self._spelling = re.compile(f"({either})")
        # Looking ahead finds spellings that overlap, too.
        self._first_character = re.compile(f"(?=(?:{either}))(.)", re.DOTALL)
        self._openings = {text[:size] for text in by_length for size in range(1, len(text))}
        self._endings = {text[size:] for text in by_length for size in range(1, len(text))}
        self._insides = {text[begin:end] for text in by_length for end in range(len(text)) for begin in range(1, end)}
        self._longest = max(map(len, by_length), default=1)

    def choose_breaker(self, content: str) -> str:
        """A noncharacter that `content` does not have. Raises RequestError when it has all of them."""
        breaker = next((character for character in _NONCHARACTERS if character not in content), None)
        if breaker is None:
            raise RequestError("The text has every one of the characters U+FDD0 to U+FDEF; remove one of them")
        return breaker

    def protect(self, value: Any, breaker: str, own_words: frozenset[str] = frozenset()) -> Any:
        """The same JSON-like value with every spelling broken, in keys too.

        `own_words` are left as they are, since the template compares with them.
        """
        if isinstance(value, str):
            return value if value in own_words else self._broken(value, breaker)
        if isinstance(value, Mapping):
            keys = [self.protect(key, breaker, own_words) for key in value]
            return dict(zip(keys, self.protect(list(value.values()), breaker, own_words), strict=True))
        if isinstance(value, list | tuple):
            return [self.protect(item, breaker, own_words) for item in value]
        return value

    def split(self, rendered: str, breaker: str) -> tuple[Span, ...]:
        """The spans of a rendering; neighbouring special tokens have no empty text between them."""
        pieces = self._spelling.split(rendered)
        spans = (Span(piece.replace(breaker, ""), bool(place % 2)) for place, piece in enumerate(pieces))
        return tuple(span for span in spans if span.text)

    def _broken(self, text: str, breaker: str) -> str:
        if self._spelling.search(text):
            text = self._first_character.sub(lambda match: match[1] + breaker, text)
        return self._with_broken_ends(text, breaker)

    def _with_broken_ends(self, text: str, breaker: str) -> str:
        """Fences off part of a spelling at either end, which the template's own words might complete.

        The fence stands between the part and the white space around it, so that trimming is not changed.
        """
        body = text.strip()
        lead, tail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        sizes = range(1, min(self._longest, len(body) + 1))
        is_inside = body in self._insides
        before = breaker if is_inside or any(body[:size] in self._endings for size in sizes) else ""
        after = breaker if any(body[-size:] in self._openings for size in sizes) else ""
        return lead + before + body + after + tail if before or after else text
