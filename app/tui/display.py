"""Turns text from outside (models, files, users, errors) into what widgets may show: cleaned, and never markup."""

from textual.content import Content

from app.sanitize import clean_line

MUTED = "$foreground 60%"
"""Style of what matters less. Content does not know the alpha of `$text-muted`, which style sheets use."""


def shown(text: str, style: str = "") -> Content:
    """One line of foreign text: controls removed, brackets are only brackets."""
    return Content.styled(clean_line(text), style) if style else Content(clean_line(text))


def size_text(num_bytes: float) -> str:
    """Bytes for a person: 812 MiB, 3.1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(num_bytes) < 1024 or unit == "TiB":
            return (
                f"{num_bytes:.0f} {unit}" if unit in ("B", "KiB") or abs(num_bytes) >= 10 else f"{num_bytes:.1f} {unit}"
            )
        num_bytes /= 1024
    raise AssertionError("unreachable")


def count_text(count: int) -> str:
    """A count that fits a status bar: 950, 1.2k, 262k, 1.0M."""
    if count < 1000:
        return str(count)
    if count < 999_950:
        return f"{count / 1000:.1f}k" if count < 9_950 else f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def seconds_text(seconds: float) -> str:
    """A duration for a person: 0.8 s, 12 s, 2 min 5 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
