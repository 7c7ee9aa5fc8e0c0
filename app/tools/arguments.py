"""Whether a call's arguments fit its tool's schema. Says in one line what doesn't, for the model to do better."""

from collections.abc import Callable, Mapping
from typing import Any

from app.tools.registry import ToolError
from runtime.protocol import ToolSchema

_FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def check_arguments(schema: ToolSchema, arguments: Mapping[str, Any]) -> None:
    """Raises ToolError naming the parameter: missing, unknown, or of the wrong type."""
    properties = schema.parameters.get("properties", {})
    missing = [name for name in schema.parameters.get("required", ()) if name not in arguments]
    if missing:
        raise ToolError(f"{schema.name} needs the parameter {missing[0]}")
    for name, value in arguments.items():
        if name not in properties:
            known = ", ".join(properties) or "none"
            raise ToolError(f"{schema.name} has no parameter {name[:40]!r}; its parameters: {known}")
        kind = properties[name].get("type")
        if isinstance(kind, str) and kind in _FITS and not _FITS[kind](value):
            raise ToolError(f"the parameter {name} of {schema.name} must be of type {kind}")
