"""The tools that come with the app. Searching a document and asking aside are added by whoever has them to give."""

from app.tools.calculator import calculator
from app.tools.clock import clock
from app.tools.registry import Tool


def built_in_tools() -> list[Tool]:
    """All that need nothing but folders."""
    return [calculator(), clock()]
