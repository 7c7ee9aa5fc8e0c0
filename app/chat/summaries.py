"""Summaries of long results of tools, part by part. The result itself is kept; a summary says that it is one."""

import math
from collections.abc import Iterator

from app.chat.side_calls import Question, SideCalls
from app.errors import SideCallError

REQUEST = "Summarise this text.\n\n{text}"
"""One of the forms that the demo model was trained on (scripts/demo/data/summaries.py); any model understands it."""
PART_CHARS = 4000
MOST_PARTS = 16
_MOST_TOKENS = 96
"""Of the summary of one part."""


async def summarise(
    side_calls: SideCalls, subject: str, text: str, context_tokens: int, conversation_id: str = ""
) -> str:
    """What is in a text, a line for each part of it, under a line that says so.

    Parts that could not be read, and an end that is too long to be, are named. Raises SideCallError where none could.
    """
    # A token is hardly ever less than a character.
    part_chars = min(max(PART_CHARS, math.ceil(len(text) / MOST_PARTS)), context_tokens // 2)
    parts = list(parts_of(text, part_chars))[:MOST_PARTS]
    questions = [
        Question(f"{subject}, part {number} of {len(parts)}", REQUEST.format(text=part.strip()))
        for number, part in enumerate(parts, 1)
    ]
    answers = await side_calls.ask_each("summary", questions, _MOST_TOKENS, conversation_id)
    said = [answer for answer in answers if isinstance(answer, str) and answer]
    if not said:
        raise next(
            (answer for answer in answers if isinstance(answer, SideCallError)), SideCallError("It says nothing.")
        )
    lines = [f"[summary of a result of {len(text):,} characters, of which the user has all]"]
    lines += [f"- {_line(answer)}" for answer in answers]
    if (num_read := sum(map(len, parts))) < len(text):
        lines.append(f"[the last {len(text) - num_read:,} characters were not read]")
    return "\n".join(lines)


def parts_of(text: str, part_chars: int) -> Iterator[str]:
    """The text in parts of at most so many characters, divided after a line or a word where one ends late enough."""
    start = 0
    while len(text) - start > part_chars:
        latest = start + part_chars
        end = next((at + 1 for mark in "\n " if (at := text.rfind(mark, start + part_chars // 2, latest)) > 0), latest)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _line(answer: str | SideCallError) -> str:
    if isinstance(answer, SideCallError):
        return f"(a part that could not be read: {answer})"
    return " ".join(answer.split()) or "(a part without a summary)"
