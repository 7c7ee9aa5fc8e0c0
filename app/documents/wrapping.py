"""Puts together the lines that a layout or an editor has broken: a sentence is found and quoted whole.

Only line ends that look like wrapping are taken out; every word stays.
"""

import re
from collections.abc import Sequence

_MIN_WIDTH, _MAX_WIDTH = 40, 160
_FULL_SHARE = 0.72
"""A wrapped line reaches at least this share of the width; the next word did not fit."""
_STARTS_ANEW = re.compile(r"\s|[-*•‣◦+>|#=~`]|\(?\d{1,3}[.):]\s|\(?[a-zA-Z][.)]\s|\[")


def wrap_width(lines: Sequence[str]) -> int:
    """The length these lines are wrapped at, or 0 where they are not: some are far longer, or all are short."""
    longest = max(map(len, lines), default=0)
    return longest if _MIN_WIDTH <= longest <= _MAX_WIDTH else 0


def continues(line: str, following: str, width: int) -> bool:
    """Whether `following` is the rest of `line`, which was wrapped at `width`."""
    return (
        width > 0
        and len(line) >= _FULL_SHARE * width
        and bool(following.strip())
        and not _STARTS_ANEW.match(following)
        and not line.startswith(("|", "#"))
    )


def unwrap(lines: Sequence[str]) -> list[str]:
    """Paragraphs of one page, without blank lines."""
    stripped = [line.strip() for line in lines]
    width = wrap_width(stripped)
    paragraphs: list[str] = []
    previous = ""
    for line in stripped:
        if previous and continues(previous, line, width):
            paragraphs[-1] += " " + line
        elif line:
            paragraphs.append(line)
        previous = line
    return paragraphs
