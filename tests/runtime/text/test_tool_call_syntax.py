"""Arguments get the types their schema says; what can't be read says why."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.protocol import ToolCall, ToolSchema
from runtime.text.tool_call_syntax import CallSyntaxError, parse_call

SCHEMA = {
    "type": "object",
    "$defs": {"size": {"enum": [1, 2]}},
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "items": {"type": "array"},
        "options": {"type": "object"},
        "maybe": {"type": ["integer", "null"]},
        "text_or_none": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "text_or_count": {"type": ["string", "integer"]},
        "colour": {"enum": ["red", "blue"]},
        "size": {"$ref": "#/$defs/size"},
        "loop": {"$ref": "#/properties/loop"},
        "free": {},
        "no_type": {"type": 5},
        "no_types": {"type": [{"a": 1}]},
    },
}
TOOLS = {"tool": ToolSchema("tool", "", SCHEMA)}


def xml(*parameters: tuple[str, str], name: str = "tool") -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"\n<function={name}>\n{body}</function>\n"


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("text", "42", "42"),
        ("text", "\n  two\n\nlines \n", "\n  two\n\nlines \n"),
        ("text", "", ""),
        ("text", "null", "null"),
        ("text", "a </parameter> b\n</function>", "a </parameter> b\n</function>"),
        ("text", "</parameter>\n", "</parameter>\n"),
        ("count", "42", 42),
        ("count", " -3\n", -3),
        ("count", "3.0", 3),
        ("share", "1e-3", 0.001),
        ("share", "3", 3),
        ("flag", "true", True),
        ("flag", "False", False),
        ("items", '[1, "a", null]', [1, "a", None]),
        ("options", '{"a": {"b": "<x>"}}', {"a": {"b": "<x>"}}),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("text", "None", "None"),
        ("maybe", "7", 7),
        ("text_or_none", "null", None),
        ("text_or_none", "nullable", "nullable"),
        ("text_or_count", "7", 7),
        ("text_or_count", '"7"', '"7"'),
        ("colour", "red", "red"),
        ("size", "2", 2),
        ("loop", "[1]", [1]),
        ("free", "[1", "[1"),
        ("free", "[1]", [1]),
        ("unknown", "12", "12"),
        ("no_type", "12", 12),
        ("no_types", "12", 12),
    ],
)
def test_values_follow_the_schema(key: str, written: str, value: Any) -> None:
    call = parse_call(xml((key, written)), "xml", TOOLS)
    assert call == ToolCall("tool", {key: value})
    assert type(call.arguments[key]) is type(value)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["text", "a", "b"]), st.text()), unique_by=lambda pair: pair[0]))
def test_string_values_come_back_as_written(parameters: list[tuple[str, str]]) -> None:
    plain = [(key, value.replace("<", "")) for key, value in parameters]
    assert parse_call(xml(*plain), "xml", TOOLS).arguments == dict(plain)


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=6))
def test_json_values_come_back(value: Any) -> None:
    assert parse_call(xml(("items", json.dumps([value]))), "xml", TOOLS).arguments == {"items": [value]}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not <function"),
        ("hello", "not <function"),
        ("<function=tool>", "not <function"),
        ("<function=>x</function>", "not <function"),
        ("<function=tool>x</function>", "text that is not"),
        ("<function=tool><parameter=a>x</function>", "text that is not"),
        ("<function=tool></function> and more", "not <function"),
        (xml(("count", "many")), "parameter count: not valid JSON"),
        (xml(("count", "1.5")), "parameter count is not of type integer"),
        (xml(("count", "true")), "parameter count is not of type integer"),
        (xml(("count", "")), "parameter count: not valid JSON"),
        (xml(("share", "NaN")), "parameter share: not valid JSON"),
        (xml(("share", "1e999")), "1e999 is too large a number"),
        (xml(("options", '{"a": 1, "a": 2}')), "'a' is given twice"),
        (xml(("maybe", '"a"')), "parameter maybe is not of type integer or null"),
        (xml(("items", "[" * 100_000)), "parameter items"),
        (xml(("count", "9" * 10_000)), "parameter count"),
        (xml(("text", "a"), ("text", "b")), "parameter text is given twice"),
    ],
)
def test_a_bad_xml_call_says_why(body: str, reason: str) -> None:
    with pytest.raises(CallSyntaxError, match=reason) as caught:
        parse_call(body, "xml", TOOLS)
    assert "\n" not in str(caught.value)


def test_odd_but_clear_xml_is_read() -> None:
    body = "<function=tool><parameter=text>a</parameter><parameter=count>1</parameter></function>"
    assert parse_call(body, "xml", TOOLS).arguments == {"text": "a", "count": 1}
    assert parse_call(xml(name="nobody"), "xml", TOOLS) == ToolCall("nobody", {})


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        (
            '\n{"name": "tool", "arguments": {"count": 1, "text": "</tool_call>"}}\n',
            {"count": 1, "text": "</tool_call>"},
        ),
        ('{"arguments": "{\\"a\\": [1]}", "name": "tool"}', {"a": [1]}),
        ('{"name": "tool"}', {}),
    ],
)
def test_hermes(body: str, arguments: dict[str, Any]) -> None:
    assert parse_call(body, "hermes", TOOLS) == ToolCall("tool", arguments)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"name": 1}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "x"}',
        '{"name": "f", "arguments": {"a": -1e999}}',
        '{"name": "f", "name": "g"}',
        '{"name": "f", "parameters": {"a": 1}}',
        "nul",
    ],
)
def test_a_bad_hermes_call_says_why(body: str) -> None:
    with pytest.raises(CallSyntaxError, match=r"call|arguments"):
        parse_call(body, "hermes", TOOLS)
