"""Turns text from outside (models, files, users, errors) into what widgets may show: cleaned, and never markup."""

from textual.content import Content

from app.sanitize import clean_line

MUTED = "$foreground 60%"
"""Style of what matters less. Content does not know the alpha of `$text-muted`, which style sheets use."""


def shown(text: str, style: str = "") -> Content:
    """One line of foreign text: controls removed, brackets are only brackets."""
    return Content.styled(clean_line(text), style) if style else Content(clean_line(text))
