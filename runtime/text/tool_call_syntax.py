"""What stands between <tool_call> and </tool_call>: XML (Qwen3.5 and later, Qwen3-Coder) or Hermes JSON.

Owns the reading of one complete call. A body that can't be read raises `CallSyntaxError` with the reason.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from runtime.protocol import ToolCall, ToolSchema

ToolStyle = Literal["xml", "hermes"]
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
# A value may itself contain </parameter>: it ends at the one that the next parameter or the end follows.
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>(.*?)</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL)
_PYTHON_LITERALS = {"True": "true", "False": "false", "None": "null"}
"""As templates of Qwen3.5 write them, and so the models, too."""
_JSON_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_ANY = frozenset(_JSON_TYPES)


class CallSyntaxError(ValueError):
    """Why a call can't be read, for a person and for the model."""


def parse_call(body: str, style: ToolStyle, tools: Mapping[str, ToolSchema]) -> ToolCall:
    """The call in `body`. Whether the tool exists is for the caller to decide."""
    return _parse_xml(body, tools) if style == "xml" else _parse_hermes(body)


def _parse_hermes(body: str) -> ToolCall:
    value = _json(body, "the call")
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise CallSyntaxError("the call is not a JSON object with a name")
    if "arguments" not in value and len(value) > 1:
        raise CallSyntaxError("the call has no 'arguments' but other keys")
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _json(arguments, "arguments")
    if not isinstance(arguments, dict):
        raise CallSyntaxError("arguments are not a JSON object")
    return ToolCall(value["name"], arguments)


def _parse_xml(body: str, tools: Mapping[str, ToolSchema]) -> ToolCall:
    function = _FUNCTION.fullmatch(body)
    if function is None:
        raise CallSyntaxError("the call is not <function=NAME>…</function>")
    name, inner = function[1].strip(), function[2]
    schema = tools[name].parameters if name in tools else {}
    arguments: dict[str, Any] = {}
    place = 0
    while parameter := _PARAMETER.match(inner, place):
        key = parameter[1].strip()
        if key in arguments:
            raise CallSyntaxError(f"parameter {key} is given twice")
        arguments[key] = _typed(key, _unwrapped(parameter[2]), _accepted_types(schema, key))
        place = parameter.end()
    if inner[place:].strip():
        raise CallSyntaxError("there is text that is not <parameter=NAME>…</parameter>")
    return ToolCall(name, arguments)


def _unwrapped(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")


def _accepted_types(schema: Mapping[str, Any], key: str) -> frozenset[str]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or key not in properties:
        # Unknown parameters stay as they were written: rendering them again gives the same text.
        return frozenset({"string"})
    return _types_of(properties[key], schema, depth=0)


def _types_of(node: Any, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    """JSON types a schema node accepts; everything where it does not say."""
    if not isinstance(node, Mapping) or depth > 8:
        return _ANY
    if isinstance(node.get("$ref"), str):
        return _types_of(_resolved(node["$ref"], root), root, depth + 1)
    declared = node.get("type")
    if declared is not None:
        # Schemas come from anywhere: what is no list of names says nothing.
        names = declared if isinstance(declared, list) else [declared]
        return frozenset(name for name in names if isinstance(name, str)) & _ANY or _ANY
    for combination in ("anyOf", "oneOf"):
        if isinstance(node.get(combination), list):
            return frozenset().union(*(_types_of(option, root, depth + 1) for option in node[combination]))
    values = node["enum"] if isinstance(node.get("enum"), list) else [node["const"]] if "const" in node else None
    return _ANY if values is None else frozenset(kind for kind in _ANY if any(map(_JSON_TYPES[kind], values)))


def _resolved(reference: str, root: Any) -> Any:
    for part in reference.removeprefix("#").strip("/").split("/"):
        root = root.get(part) if isinstance(root, Mapping) else None
    return root


def _typed(key: str, text: str, accepted: frozenset[str]) -> Any:
    """`text` as the first of: a JSON value of an accepted type; itself, where strings are accepted."""
    others = accepted - {"string"}
    if not others:
        return text
    try:
        value = _json(_PYTHON_LITERALS.get(text.strip(), text), f"parameter {key}")
        if others == {"integer"} and isinstance(value, float) and value.is_integer():
            value = int(value)
        if any(_JSON_TYPES[kind](value) for kind in others):
            return value
        raise CallSyntaxError(f"parameter {key} is not of type {' or '.join(sorted(accepted))}")
    except CallSyntaxError:
        if "string" in accepted:
            return text
        raise


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_repetition
        )
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else str(error).split(" (")[0]
        raise CallSyntaxError(f"{what}: not valid JSON ({reason})") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _finite(number: str) -> float:
    """No JSON can be written of infinity, so whatever takes the call could not read it."""
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number[:40]} is too large a number")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """One of two values would be lost."""
    values = dict(pairs)
    if len(values) != len(pairs):
        repeated = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise ValueError(f"{repeated[:40]!r} is given twice")
    return values
