"""What a conversation is called in lists: the first words of its first message."""

from app.sanitize import clean_line

MAX_TITLE_CHARS = 60


def first_words(text: str, fallback: str = "New chat") -> str:
    """At most `MAX_TITLE_CHARS` characters of the text in one line, cut between words where possible."""
    line = " ".join(clean_line(text[: 8 * MAX_TITLE_CHARS]).split())
    if len(line) <= MAX_TITLE_CHARS:
        return line or fallback
    cut = line[: MAX_TITLE_CHARS - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut else cut).rstrip() + "…"
