"""The colours: two themes of our own, one dark and one light, beside a few of Textual's."""

from typing import get_args

from textual.theme import Theme

from app.settings import ThemeName

DARK = Theme(
    name="hotslot-dark",
    primary="#e8a15c",
    secondary="#7aa7c7",
    accent="#8ec3b0",
    foreground="#d9dbe0",
    background="#14161a",
    surface="#1b1e24",
    panel="#22262e",
    success="#93c47d",
    warning="#e3bd6a",
    error="#e57373",
    dark=True,
    variables={
        "border": "#e8a15c",
        "border-blurred": "#3a404b",
        "code-background": "#191c22",
        "code-header-background": "#22262e",
        "block-cursor-foreground": "#14161a",
        "block-cursor-background": "#e8a15c",
        "input-selection-background": "#7aa7c7 40%",
        "footer-background": "#14161a",
        "footer-key-foreground": "#e8a15c",
        "footer-description-foreground": "#9aa0ab",
        "scrollbar": "#3a404b",
        "scrollbar-hover": "#545c6a",
        "scrollbar-active": "#e8a15c",
        "scrollbar-background": "#14161a",
        "scrollbar-background-hover": "#14161a",
        "scrollbar-background-active": "#14161a",
    },
)

LIGHT = Theme(
    name="hotslot-light",
    primary="#a8560f",
    secondary="#2d6186",
    accent="#1f6f5c",
    foreground="#24272d",
    background="#faf8f4",
    surface="#f1eee8",
    panel="#e8e4dc",
    success="#3f7a2a",
    warning="#8a5a00",
    error="#b3261e",
    dark=False,
    variables={
        "border": "#a8560f",
        "border-blurred": "#c9c3b8",
        "code-background": "#f3f0ea",
        "code-header-background": "#e8e4dc",
        "block-cursor-foreground": "#faf8f4",
        "block-cursor-background": "#a8560f",
        "input-selection-background": "#2d6186 30%",
        "footer-background": "#faf8f4",
        "footer-key-foreground": "#a8560f",
        "footer-description-foreground": "#666b74",
        "scrollbar": "#c9c3b8",
        "scrollbar-hover": "#a9a297",
        "scrollbar-active": "#a8560f",
        "scrollbar-background": "#faf8f4",
        "scrollbar-background-hover": "#faf8f4",
        "scrollbar-background-active": "#faf8f4",
    },
)

OWN_THEMES = (DARK, LIGHT)
THEME_NAMES: tuple[ThemeName, ...] = get_args(ThemeName)

FALLBACK_VARIABLES = {"code-background": "#000000 12%", "code-header-background": "#808080 18%"}
"""What Textual's own themes do not define."""
