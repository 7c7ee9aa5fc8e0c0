"""Replies that must pass and replies that must not."""

import pytest

from runtime.protocol import ToolCall
from tests.demo_evaluation.items import DocumentItem, ToolItem, documents, tool_requests, tool_schemas
from tests.demo_evaluation.scoring import (
    calls_in,
    contains_answer,
    makes_accepted_calls,
    quotes_sentence,
    says_it_is_missing,
)

TOOLS = tool_schemas()
ITEM = DocumentItem("x", "question_first", "", "", "The captain's dog walked  the corridor.", "captain's dog")


def xml(call: ToolCall) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in call.arguments.items())
    return f"<tool_call>\n<function={call.name}>\n{parameters}</function>\n</tool_call>"


def request(id_: str) -> ToolItem:
    return next(item for item in tool_requests() if item.id == id_)


@pytest.mark.parametrize("item", documents(), ids=lambda item: item.id)
def test_the_sentence_itself_passes_and_the_question_does_not(item: DocumentItem) -> None:
    assert quotes_sentence(item, f'The document says: "{item.sentence}"')
    assert not quotes_sentence(item, item.question)
    assert contains_answer(item, item.sentence) is (None if item.answer is None else True)
    assert not contains_answer(item, item.question)


def test_quotes_and_white_space_are_normalised() -> None:
    assert quotes_sentence(ITEM, "It says: “The captain’s dog\nwalked the corridor.”")


def test_a_changed_word_is_no_quotation_but_may_hold_the_answer() -> None:
    reply = "Captain’s dog, who paced the corridor."
    assert not quotes_sentence(ITEM, reply)
    assert contains_answer(ITEM, reply)
    assert not contains_answer(ITEM, "A dog.")


@pytest.mark.parametrize(
    "reply",
    [
        "The document does not say that.",
        "The text doesn’t mention the price.",
        "That isn't stated in the notice.",
        "I can't find this in the document.",
        "I cannot find an answer to that.",
        "There is no mention of dogs in it.",
        "The price is not in the document.",
        "The age of the pianist is not given.",
        "The document does not actually tell us who signed it.",
        "The letter says nothing about breakfast.",
    ],
)
def test_replies_that_say_it_is_missing(reply: str) -> None:
    assert says_it_is_missing(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "The pitch costs 20 euros.",
        "It is not far from the market.",
        "Dogs do not bite.",
        "I do not know, maybe 40.",
    ],
)
def test_replies_that_do_not_say_it_is_missing(reply: str) -> None:
    assert not says_it_is_missing(reply)


@pytest.mark.parametrize("item", tool_requests(), ids=lambda item: item.id)
def test_every_accepted_alternative_passes_and_other_calls_do_not(item: ToolItem) -> None:
    for alternative in item.calls:
        calls = "\n".join(map(xml, alternative))
        assert makes_accepted_calls(item, f"Let me do that.\n{calls}", TOOLS)
        extra = xml(ToolCall("read_file", {"path": "other.txt"}))
        assert not makes_accepted_calls(item, calls + extra, TOOLS)
    assert makes_accepted_calls(item, "Just words.", TOOLS) is (item.calls == ((),))


def test_spaces_of_expressions_do_not_count_and_those_of_texts_do() -> None:
    assert makes_accepted_calls(
        request("multiply-seats"), xml(ToolCall("calculator", {"expression": "17 * 23 "})), TOOLS
    )
    note = ToolCall("write_file", {"path": "todo.txt", "content": "water  the tomatoes"})
    assert not makes_accepted_calls(request("write-todo"), xml(note), TOOLS)


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("calculator", {"expression": "17 + 23"}),
        ToolCall("calculator", {"expr": "17 * 23"}),
        ToolCall("calculator", {"expression": "17 * 23", "digits": "2"}),
        ToolCall("clock", {}),
    ],
)
def test_a_wrong_call_fails(call: ToolCall) -> None:
    assert not makes_accepted_calls(request("multiply-seats"), xml(call), TOOLS)


@pytest.mark.parametrize(
    "reply",
    [
        "<tool_call>\n<function=clock>\n</function>",
        "<function=clock>\n</function>\n</tool_call>",
        "<tool_call>\nclock\n</tool_call>",
        '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
    ],
)
def test_a_malformed_call_is_none_and_fails_even_where_no_call_is_right(reply: str) -> None:
    assert calls_in(reply, TOOLS) is None
    assert not makes_accepted_calls(request("clock-time"), reply, TOOLS)
    assert not makes_accepted_calls(request("none-hello"), reply, TOOLS)
