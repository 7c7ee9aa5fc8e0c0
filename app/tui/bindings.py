"""The action table as Textual's key bindings."""

from collections.abc import Iterable
from dataclasses import replace

from textual.binding import Binding

from app.actions import ACTIONS, Scope, footer_key


def either_case(*keys: str) -> str:
    """Keys as Textual binds them; letters, which screens show as capitals, work with Shift and Caps Lock, too."""
    return ",".join(key for name in keys for key in dict.fromkeys((name, name.upper() if len(name) == 1 else name)))


def bindings_of(scope: Scope) -> list[Binding]:
    """Textual's bindings of one scope.

    Keys of the app go first, so that no text field takes them, and so do those that open a screen: Textual brings each
    key to what has the focus when it comes, which is the prompt until they are obeyed.
    """
    return [
        Binding(
            either_case(*action.keys),
            action.name,
            action.footer or action.label,
            show=bool(action.footer),
            key_display=footer_key(action.keys[0]),
            priority=scope == "app" or action.opens_screen,
        )
        for action in ACTIONS
        if action.scope == scope and action.keys
    ]


def passed_on(keys: Iterable[str]) -> list[Binding]:
    """Bindings for a text field that leave these keys, which it would use itself, to the screen around it."""
    return [
        replace(binding, action=f"screen.{binding.action}") for binding in bindings_of("chat") if binding.key in keys
    ]
