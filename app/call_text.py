"""A tool call as a person reads it, the same in every front end that prints lines."""

import json

from app.sanitize import clean_line
from runtime.protocol import ToolCall


def call_text(call: ToolCall) -> str:
    """A call with its exact arguments, on one line."""
    arguments = ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in call.arguments.items()
    )
    return clean_line(f"{call.name}({arguments})")
