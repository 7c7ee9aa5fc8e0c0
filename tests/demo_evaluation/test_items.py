"""The evaluation items are sound: each can be passed, and only by what its rule asks for."""

import re
from collections import Counter

import pytest

from tests.demo_evaluation.items import (
    DocumentItem,
    MissingItem,
    ToolItem,
    documents,
    everyday_prompts,
    missing,
    tool_requests,
    tool_schemas,
)
from tests.demo_evaluation.scoring import normalised, says_it_is_missing

MARK = re.compile(r"\[(?:p\.|line )\d+\]")
BUILT_INS = {
    "read_file",
    "list_files",
    "search_files",
    "write_file",
    "run_command",
    "calculator",
    "clock",
    "search_document",
    "ask_aside",
}


def by_id(item: DocumentItem | MissingItem | ToolItem) -> str:
    return item.id


def test_counts() -> None:
    assert len(documents()) == 70
    assert len(missing()) == 20
    assert len(tool_requests()) == 60
    assert len(everyday_prompts()) == 100


def test_ids_and_texts_are_unique() -> None:
    items: list[DocumentItem | MissingItem | ToolItem] = [*documents(), *missing(), *tool_requests()]
    texts = [item.request if isinstance(item, ToolItem) else item.document for item in items]
    for values in ([item.id for item in items], texts, everyday_prompts()):
        assert [value for value, count in Counter(values).items() if count > 1] == []


@pytest.mark.parametrize("item", documents(), ids=by_id)
def test_sentence_stands_once_in_its_document_as_a_whole_sentence(item: DocumentItem) -> None:
    assert item.document.count(item.sentence) == 1
    assert normalised(item.document).count(normalised(item.sentence)) == 1
    assert re.match(r'["“A-Z0-9]', item.sentence)
    assert re.search(r'[.!?]["”]?$', item.sentence)
    before, after = item.document.split(item.sentence)
    assert not before or re.search(r'(?:[.!?:]["”)]?|\]|,\n|\n|\))\s*$', before)
    assert not after or after[0].isspace()
    assert not MARK.search(item.sentence)


@pytest.mark.parametrize("item", documents(), ids=by_id)
def test_answer_is_in_the_sentence_and_not_in_the_question(item: DocumentItem) -> None:
    if item.answer is not None:
        assert item.answer
        assert item.answer in item.sentence
        assert item.answer.lower() not in item.question.lower()


@pytest.mark.parametrize("item", [*documents(), *missing()], ids=by_id)
def test_document_texts_are_tidy(item: DocumentItem | MissingItem) -> None:
    assert item.layout in ("question_first", "document_first")
    assert item.question.endswith("?")
    assert item.document == item.document.strip()
    assert not re.search(r"[{}\t]|  | $", item.document, re.MULTILINE)
    words = len(item.document.split())
    assert 60 <= words <= 220 or 300 <= words <= 600


def test_document_mix() -> None:
    items = documents()
    assert sum(len(item.document.split()) >= 300 for item in items) == 12
    assert sum(MARK.search(item.document) is not None for item in items) == 8
    assert sum(item.layout == "document_first" for item in items) >= 20
    assert sum(item.answer is None for item in items) <= 10


def test_answers_are_found_early_in_the_middle_and_late() -> None:
    thirds = Counter(3 * item.document.index(item.sentence) // len(item.document) for item in documents())
    assert min(thirds[third] for third in range(3)) >= 12


def test_prompt_follows_the_layout() -> None:
    items: list[DocumentItem | MissingItem] = [*documents(), *missing()]
    for item in items:
        first, last = item.prompt.startswith(item.question), item.prompt.endswith(item.question)
        assert (first, last) == ((True, False) if item.layout == "question_first" else (False, True))


@pytest.mark.parametrize("item", missing(), ids=by_id)
def test_missing_answer_is_not_in_the_document(item: MissingItem) -> None:
    assert item.absent
    for word in item.absent:
        start = r"(?<!\w)" if word[0].isalnum() else ""
        assert not re.search(start + re.escape(word), item.document.lower())


@pytest.mark.parametrize("item", missing(), ids=by_id)
def test_quoting_the_document_does_not_pass_for_saying_that_it_is_missing(item: MissingItem) -> None:
    assert not says_it_is_missing(item.document)
    assert not says_it_is_missing(item.question)


def test_schemas_are_those_of_the_built_in_tools() -> None:
    schemas = tool_schemas()
    assert set(schemas) == BUILT_INS
    for schema in schemas.values():
        assert schema.description
        assert schema.parameters["type"] == "object"
        assert set(schema.parameters["required"]) == set(schema.parameters["properties"])


@pytest.mark.parametrize("item", tool_requests(), ids=by_id)
def test_accepted_calls_use_offered_tools_with_their_parameters(item: ToolItem) -> None:
    schemas = tool_schemas()
    assert len(set(item.tools)) == len(item.tools)
    assert set(item.tools) <= set(schemas)
    assert item.calls
    for call in (call for alternative in item.calls for call in alternative):
        assert call.name in item.tools
        assert set(call.arguments) == set(schemas[call.name].parameters["properties"])
        assert all(isinstance(value, str) and value == value.strip() for value in call.arguments.values())


@pytest.mark.parametrize("item", tool_requests(), ids=by_id)
def test_what_a_call_needs_is_in_the_request(item: ToolItem) -> None:
    """One alternative at least takes its texts from the request, so that it can be known exactly."""
    free = {"path", "content", "query", "command", "question"}
    request = item.request
    assert any(
        all(value in request for call in alternative for key, value in call.arguments.items() if key in free)
        for alternative in item.calls
    )


def test_tool_mix() -> None:
    items = tool_requests()
    lengths = Counter(len(item.calls[0]) for item in items)
    assert lengths == {0: 8, 1: 44, 2: 8}
    assert all(len({len(alternative) for alternative in item.calls}) == 1 for item in items)
    assert {call.name for item in items for call in item.calls[0]} == BUILT_INS


def test_everyday_prompts_are_single_clean_lines() -> None:
    for prompt in everyday_prompts():
        assert prompt == " ".join(prompt.split())
        assert 2 <= len(prompt) <= 120
