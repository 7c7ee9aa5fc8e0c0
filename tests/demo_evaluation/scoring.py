"""When a reply to an evaluation item passes: exact rules, no judgement.

A reply is what the user sees, without the reasoning before it.
"""

import re
from collections.abc import Mapping

from runtime.protocol import ToolCall, ToolSchema
from runtime.text.tool_call_syntax import CallSyntaxError, parse_call
from tests.demo_evaluation.items import DocumentItem, ToolItem

_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "«": '"', "»": '"'})
_SOURCE = r"(?:document|text|passage|page|article|letter|e-?mail|message|notice|notes?)"
_TOLD = (
    r"(?:said|mentioned|stated|given|named|specified|included|provided|covered|answered|listed|explained"
    r"|found|contained|described|discussed|addressed)"
)
_TELL = (
    r"(?:say|mention|state|give|name|specify|include|provide|cover|answer|list|explain|contain|describe|discuss"
    r"|address|tell|indicate|reveal)"
)
_REFUSAL = re.compile(
    rf"\b(?:do|does|did)(?:n't| not) (?:\w+ )?{_TELL}\b"
    rf"|\b(?:is|are|was|were)(?:n't| not) (?:\w+ )?{_TOLD}\b"
    rf"|\bnot {_TOLD}\b"
    rf"|\bnot (?:in|part of) (?:the|this|that|your) {_SOURCE}\b"
    r"|\b(?:can't|cannot|can not|couldn't|could not) (?:find|tell|see|say|answer|be (?:found|answered))\b"
    r"|\bno (?:mention|information|answer|word|details?) (?:of|about|on|to|in|for|is|are)\b"
    rf"|\b(?:nothing|nowhere) in (?:the|this|that|your) {_SOURCE}\b"
    rf"|\b{_SOURCE} (?:says|mentions|states|has|gives|contains) nothing\b",
    re.IGNORECASE,
)
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def normalised(text: str) -> str:
    """`text` with straight quotes and every run of white space as one space."""
    return " ".join(text.translate(_QUOTES).split())


def quotes_sentence(item: DocumentItem, reply: str) -> bool:
    """Whether the reply contains the very sentence that answers the question."""
    return normalised(item.sentence) in normalised(reply)


def contains_answer(item: DocumentItem, reply: str) -> bool | None:
    """Whether the key string is in the reply, whatever its case. None for an item without one."""
    return None if item.answer is None else normalised(item.answer).lower() in normalised(reply).lower()


def says_it_is_missing(reply: str) -> bool:
    """Whether the reply says that the document doesn't have the answer."""
    return _REFUSAL.search(normalised(reply)) is not None


def calls_in(reply: str, tools: Mapping[str, ToolSchema]) -> tuple[ToolCall, ...] | None:
    """The XML calls of the reply, in order; None if one of them can't be read."""
    bodies = _CALL.findall(reply)
    if "tool_call>" in _CALL.sub("", reply):
        return None
    try:
        return tuple(parse_call(body, "xml", tools) for body in bodies)
    except CallSyntaxError:
        return None


def makes_accepted_calls(item: ToolItem, reply: str, tools: Mapping[str, ToolSchema]) -> bool:
    """Whether the calls equal one accepted alternative, outer white space and spaces of expressions aside."""
    calls = calls_in(reply, tools)
    return calls is not None and any(_same(calls, alternative) for alternative in item.calls)


def _same(calls: tuple[ToolCall, ...], alternative: tuple[ToolCall, ...]) -> bool:
    return [*map(_comparable, calls)] == [*map(_comparable, alternative)]


def _comparable(call: ToolCall) -> tuple[str, dict[str, str]]:
    arguments = {key: str(value).strip() for key, value in call.arguments.items()}
    if call.name == "calculator" and "expression" in arguments:
        arguments["expression"] = re.sub(r"\s", "", arguments["expression"])
    return call.name, arguments
