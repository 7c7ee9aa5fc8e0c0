"""The local date and time."""

from datetime import datetime

from app.tools.registry import Arguments, Scope, Tool, text_schema

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
CLOCK = text_schema("clock", "Return the current date and time.")


def clock() -> Tool:
    """The built-in tool."""
    return Tool(CLOCK, "none", _run)


async def _run(_: Arguments, __: Scope) -> str:
    now = datetime.now().astimezone()
    # By hand: strftime would write the names in the user's language.
    return f"{DAYS[now.weekday()]}, {now.day} {MONTHS[now.month - 1]} {now.year} {now:%H:%M}"
