"""Answers as models of both call styles write them, good and bad, each with the parts it means.

A stream is a list of runs; a run that is a special token's name is that token, everything else is ordinary text.
"""

from dataclasses import dataclass
from typing import Any

from runtime.protocol import ToolCall, ToolSchema
from runtime.text.output_parser import Call, MalformedCall, Part, Text
from runtime.text.tool_call_syntax import ToolStyle

OPEN, CLOSE, THINK, END_THINK = "<tool_call>", "</tool_call>", "<think>", "</think>"
SPECIALS = (OPEN, CLOSE, THINK, END_THINK)
TOOLS = (
    ToolSchema("weather", "", {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}),
    ToolSchema(
        "run", "",
        {"properties": {"code": {"type": "string"}, "flag": {"type": "boolean"}, "share": {"type": "number"},
                        "items": {"type": "array"}, "options": {"type": "object"}}},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """`parts` with neighbouring text of one channel joined. The reason of a malformed part need only be contained."""

    name: str
    style: ToolStyle
    runs: tuple[str, ...]
    parts: tuple[Part, ...]
    opens_reasoning: bool = False


def _xml(name: str, **parameters: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"\n<function={name}>\n{body}</function>\n"


def _call(name: str, **arguments: Any) -> Call:
    return Call(ToolCall(name, arguments))


def _one(name: str, style: ToolStyle, body: str, part: Part) -> Recorded:
    return Recorded(name, style, (OPEN, body, CLOSE), (part,))


def _bad(name: str, style: ToolStyle, body: str, reason: str) -> Recorded:
    return _one(name, style, body, MalformedCall(f"{OPEN}{body}{CLOSE}", reason))


_PARIS, _ROME = _xml("weather", city="Paris", days="3"), _xml("weather", city="Rome")
_TRICKY = 'if (a < b) { return "</parameter>"; }\n</function>\n<tool_call> {"x": 1}'
_MENTION = f"I may call {OPEN}{_PARIS}{CLOSE} or {OPEN} alone."

XML = (
    _one("a call", "xml", _PARIS, _call("weather", city="Paris", days=3)),
    Recorded("two calls back to back", "xml", (OPEN, _PARIS, CLOSE, "\n", OPEN, _ROME, CLOSE),
             (_call("weather", city="Paris", days=3), _call("weather", city="Rome"))),
    Recorded("two calls without a break", "xml", (OPEN, _PARIS, CLOSE, OPEN, _ROME, CLOSE),
             (_call("weather", city="Paris", days=3), _call("weather", city="Rome"))),
    Recorded("text before", "xml", ("I will look.\n\n", OPEN, _PARIS, CLOSE),
             (Text("text", "I will look."), _call("weather", city="Paris", days=3))),
    Recorded("text between and after", "xml",
             ("One.\n", OPEN, _ROME, CLOSE, "\nTwo.\n\n", OPEN, _ROME, CLOSE, "\nDone."),
             (Text("text", "One."), _call("weather", city="Rome"), Text("text", "Two."),
              _call("weather", city="Rome"), Text("text", "Done."))),
    Recorded("reasoning first", "xml", ("Look it up.\n", END_THINK, "\n\n", OPEN, _ROME, CLOSE),
             (Text("reasoning", "Look it up."), _call("weather", city="Rome")), opens_reasoning=True),
    Recorded("reasoning it opens itself", "xml", (THINK, "\nHm.\n", END_THINK, "\n\nYes. ", OPEN, _ROME, CLOSE),
             (Text("reasoning", "Hm."), Text("text", "Yes. "), _call("weather", city="Rome"))),
    Recorded("a call merely mentioned in reasoning", "xml",
             ("I may call ", OPEN, _PARIS, CLOSE, " or ", OPEN, " alone.", END_THINK, "\n\nNo."),
             (Text("reasoning", _MENTION), Text("text", "No.")), opens_reasoning=True),
    Recorded("markup spelled in text", "xml", (f"Write <tool_call>{_PARIS} like so: <function=weather>.",),
             (Text("text", f"Write <tool_call>{_PARIS} like so: <function=weather>."),)),
    _one("braces and closing tags inside a value", "xml", _xml("run", code=_TRICKY), _call("run", code=_TRICKY)),
    _one("several lines", "xml", _xml("run", code="a\n\n  b\n\tc"), _call("run", code="a\n\n  b\n\tc")),
    _one("unicode", "xml", _xml("weather", city="Zürich 東京 👩‍👩‍👧 e\u0301"),
         _call("weather", city="Zürich 東京 👩‍👩‍👧 e\u0301")),
    _one("numbers, flags, lists and objects", "xml",
         _xml("run", flag="true", share="2.5e-1", items='[1, "a", {"b": null}]', options='{"k": {"n": [1]}}'),
         _call("run", flag=True, share=0.25, items=[1, "a", {"b": None}], options={"k": {"n": [1]}})),
    _one("a flag as Python writes it", "xml", _xml("run", flag="False"), _call("run", flag=False)),
    _one("a string that looks like a number", "xml", _xml("weather", city="75001"), _call("weather", city="75001")),
    _one("no parameters", "xml", _xml("weather"), _call("weather")),
    _one("an empty value", "xml", _xml("run", code=""), _call("run", code="")),
    _one("all on one line", "xml", "<function=weather><parameter=city>Oslo</parameter></function>",
         _call("weather", city="Oslo")),
    _one("an unknown tool", "xml", _xml("nobody", x="12"), _call("nobody", x="12")),
    _one("a parameter the schema lacks", "xml", _xml("weather", mood="[1]"), _call("weather", mood="[1]")),
    _bad("missing </function>", "xml", "\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n", "<function="),
    _bad("bare <function=", "xml", "\n<function=", "<function="),
    _bad("missing > after the name", "xml", "\n<function=weather\n<parameter=city>\nParis\n</parameter>\n</function>\n",
         "<function="),
    _bad("missing > after the key", "xml", "\n<function=weather>\n<parameter=city\nParis\n</parameter>\n</function>\n",
         "text that is not"),
    _bad("missing </parameter>", "xml", "\n<function=weather>\n<parameter=city>\nParis\n</function>\n", "text that is"),
    _bad("a duplicate parameter", "xml",
         "\n<function=weather>\n<parameter=city>\na\n</parameter>\n<parameter=city>\nb\n</parameter>\n</function>\n",
         "given twice"),
    _bad("a word where a number belongs", "xml", _xml("weather", days="many"), "parameter days"),
    _bad("nothing at all", "xml", "", "<function="),
    _bad("hermes JSON in an XML model", "xml", '\n{"name": "weather", "arguments": {}}\n', "<function="),
    Recorded("a bad call, then a good one", "xml", (OPEN, "oops", CLOSE, "\n", OPEN, _ROME, CLOSE),
             (MalformedCall(f"{OPEN}oops{CLOSE}", "<function="), _call("weather", city="Rome"))),
    Recorded("unterminated at the token limit", "xml", ("Well.\n", OPEN, "\n<function=weather>\n<parameter=ci"),
             (Text("text", "Well."), MalformedCall(f"{OPEN}\n<function=weather>\n<parameter=ci", "ends inside"))),
    Recorded("only opened", "xml", (OPEN,), (MalformedCall(OPEN, "ends inside"),)),
    Recorded("opened twice", "xml", (OPEN, "\n<function=we", OPEN, _ROME, CLOSE),
             (MalformedCall(f"{OPEN}\n<function=we", "another call begins"), _call("weather", city="Rome"))),
    Recorded("closed without being open", "xml", ("So ", CLOSE, " it is."), (Text("text", f"So {CLOSE} it is."),)),
    Recorded("reasoning cut at the token limit", "xml", ("Let me see ", OPEN, _ROME),
             (Text("reasoning", f"Let me see {OPEN}{_ROME.rstrip()}"),), opens_reasoning=True),
)  # fmt: skip


def _json(text: str) -> str:
    return f"\n{text}\n"


_PARIS_JSON = _json('{"name": "weather", "arguments": {"city": "Paris", "days": 3}}')
_ROME_JSON = _json('{"name": "weather", "arguments": {"city": "Rome"}}')

HERMES = (
    _one("a call", "hermes", _PARIS_JSON, _call("weather", city="Paris", days=3)),
    Recorded("two calls back to back", "hermes", (OPEN, _PARIS_JSON, CLOSE, "\n", OPEN, _ROME_JSON, CLOSE),
             (_call("weather", city="Paris", days=3), _call("weather", city="Rome"))),
    Recorded("text before", "hermes", ("Sure, a moment.\n", OPEN, _ROME_JSON, CLOSE),
             (Text("text", "Sure, a moment."), _call("weather", city="Rome"))),
    Recorded("reasoning first", "hermes", (THINK, "\nThey ask.\n", END_THINK, "\n\n", OPEN, _ROME_JSON, CLOSE),
             (Text("reasoning", "They ask."), _call("weather", city="Rome"))),
    Recorded("a call merely mentioned in reasoning", "hermes", ("Not ", OPEN, " now.\n", END_THINK, "\n\nHello."),
             (Text("reasoning", f"Not {OPEN} now."), Text("text", "Hello.")), opens_reasoning=True),
    _one("braces and tags inside a value", "hermes",
         _json(r'{"name": "run", "arguments": {"code": "}{ \"</tool_call>\" </parameter> \\n"}}'),
         _call("run", code='}{ "</tool_call>" </parameter> \\n')),
    _one("unicode, raw and escaped", "hermes",
         _json('{"name": "weather", "arguments": {"city": "Zürich \\u6771京 😀"}}'),
         _call("weather", city="Zürich 東京 😀")),
    _one("every JSON type", "hermes",
         _json('{"name": "run", "arguments": {"flag": false, "share": -1.5, "items": [null], "options": {"a": {}}}}'),
         _call("run", flag=False, share=-1.5, items=[None], options={"a": {}})),
    _one("arguments before the name", "hermes", _json('{"arguments": {"city": "Oslo"}, "name": "weather"}'),
         _call("weather", city="Oslo")),
    _one("arguments as a text of JSON", "hermes", _json('{"name": "weather", "arguments": "{\\"city\\": \\"Bern\\"}"}'),
         _call("weather", city="Bern")),
    _one("no arguments", "hermes", _json('{"name": "weather"}'), _call("weather")),
    _one("spread over lines", "hermes", _json('{\n  "name": "weather",\n  "arguments": {\n    "days": 2\n  }\n}'),
         _call("weather", days=2)),
    _one("an unknown tool", "hermes", _json('{"name": "nobody", "arguments": {"x": 1}}'), _call("nobody", x=1)),
    _bad("cut JSON", "hermes", _json('{"name": "weather", "arguments": {"city": "Par'), "not valid JSON"),
    _bad("a missing brace", "hermes", _json('{"name": "weather", "arguments": {"city": "Paris"}'), "not valid JSON"),
    _bad("no name", "hermes", _json('{"arguments": {}}'), "with a name"),
    _bad("a list", "hermes", _json('[{"name": "weather"}]'), "with a name"),
    _bad("arguments that are a list", "hermes", _json('{"name": "weather", "arguments": [1]}'), "arguments"),
    _bad("single quotes", "hermes", _json("{'name': 'weather'}"), "not valid JSON"),
    _bad("XML in a hermes model", "hermes", _ROME, "not valid JSON"),
    _bad("words", "hermes", "weather in Rome", "not valid JSON"),
    Recorded("unterminated at the token limit", "hermes", ("So:\n", OPEN, '\n{"name": "wea'),
             (Text("text", "So:"), MalformedCall(f'{OPEN}\n{{"name": "wea', "ends inside"))),
    Recorded("a bad call, then a good one", "hermes", (OPEN, "{", CLOSE, "\n", OPEN, _ROME_JSON, CLOSE, "\n"),
             (MalformedCall(f"{OPEN}{{{CLOSE}", "not valid JSON"), _call("weather", city="Rome"))),
)  # fmt: skip

STREAMS = XML + HERMES
