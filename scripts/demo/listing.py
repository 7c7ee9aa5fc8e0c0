"""Owns one helper: word lists written as one string."""


def listed(words: str) -> list[str]:
    """Splits at blanks; a list of quoted words would fill pages."""
    return words.split()
