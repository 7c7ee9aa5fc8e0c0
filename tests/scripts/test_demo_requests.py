"""Requests written by hand: calls fit the application's schemas, arguments survive the changes of wording."""

import ast
import json
import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.conversation import Call  # noqa: E402
from demo.data.requests import (  # noqa: E402
    OFFERS,
    Request,
    Wording,
    fresh_numbers,
    parse_request,
    read_requests,
    request_chat,
    with_fresh_values,
)
from demo.data.tool_uses import Uses  # noqa: E402
from demo.data.words import Fillers  # noqa: E402

ITEMS = read_requests(ROOT / "scripts" / "demo" / "text" / "requests.txt")
SCHEMAS = json.loads((ROOT / "tests" / "demo_evaluation" / "tools.json").read_text(encoding="utf-8"))
BY_NAME = {schema["function"]["name"]: schema for schema in SCHEMAS}
CALLED = [(item, call) for item in ITEMS for call in item.calls]
# The months and hours of "2 years", "13 hours"; sides of a square; the fence's two sides.
KNOWN_NUMBERS = {"12", "60", "100", "2", "3", "7", "14"}


def test_block_is_a_request_with_calls_or_an_answer():
    assert parse_request("Hi\n! Hello!") == Request("Hi", (), "Hello!")
    two = parse_request('Do both\n= clock\n= write_file {"path": "a.c", "content": "x; y"}')
    assert two.calls == (Call("clock", {}), Call("write_file", {"path": "a.c", "content": "x; y"}))
    for wrong in ("Hi", "Hi\nHello", "Hi\n= clock\n! Hello", "Hi\n= read_file a.txt"):
        with pytest.raises(ValueError, match=": "):
            parse_request(wrong)


def test_there_are_enough_of_each_kind_and_no_two_alike():
    kinds = Counter("+".join(sorted(call.name for call in item.calls)) for item in ITEMS)
    assert len({item.asked.lower() for item in ITEMS}) == len(ITEMS)
    assert all(kinds[name] >= 35 for name in BY_NAME)
    assert kinds[""] == 60


def test_calls_fit_the_applications_schemas():
    assert {name: offer.schema for name, offer in OFFERS.items()} == BY_NAME
    for _, call in CALLED:
        assert list(call.arguments) == BY_NAME[call.name]["function"]["parameters"]["required"]


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_arguments_are_in_the_request(name):
    for item, call in CALLED:
        if call.name != name:
            continue
        for key, value in call.arguments.items():
            if key == "expression":
                ast.parse(value, mode="eval")
                in_request = re.findall(r"\d+(?:\.\d+)?", item.asked.replace(",", ""))
                assert set(re.findall(r"\d+(?:\.\d+)?", value)) <= {*in_request, *KNOWN_NUMBERS}, item
            elif key == "question":
                words = re.findall(r"\w{4,}", value.lower())
                said = sum(word in item.asked.lower() for word in words)
                assert said >= len(words) - 1, item
            elif value != ".":
                assert value in item.asked, item


def test_change_of_wording_keeps_the_arguments():
    for seed, (item, call) in enumerate(CALLED * 12):
        changed = Wording(random.Random(seed), item).varied()
        for value in set(call.arguments.values()) - {"", "."}:
            assert changed.count(value) == item.asked.count(value)
        assert re.findall(r"\d+", changed) == re.findall(r"\d+", item.asked)


def test_fresh_values_stand_in_request_and_call_alike():
    uses, changed = Uses(), 0
    for seed, item in enumerate(ITEMS * 2):
        fresh = with_fresh_values(uses, Fillers(random.Random(seed), ("lamp", "chair", "spoon", "boat")), item)
        changed += fresh != item
        assert [call.name for call in fresh.calls] == [call.name for call in item.calls]
        for before, after in zip(item.calls, fresh.calls, strict=True):
            for name, value in after.arguments.items():
                if name == "expression":
                    ast.parse(value, mode="eval")
                    new = set(re.findall(r"\d+(?:\.\d+)?", value)) - set(re.findall(r"[\d.]+", before.arguments[name]))
                    assert new <= set(re.findall(r"\d+(?:\.\d+)?", fresh.asked.replace(",", "")))
                else:
                    assert value == before.arguments[name] or value in fresh.asked
    assert changed > len(ITEMS)


def test_a_fresh_number_keeps_its_form_and_others_stay():
    fill = Fillers(random.Random(0), ("lamp",))
    fresh = fresh_numbers(fill, "At 10:30 we had 84,310 km and 12 cars, 7.5 each", "84310 / 12 + 7.5")
    assert set(fresh) == {"84310", "84,310", "7.5"}
    assert re.fullmatch(r"\d\d,\d{3}", fresh["84,310"])
    assert fresh["84,310"].replace(",", "") == fresh["84310"]


def test_a_request_gets_its_calls_or_its_answer():
    uses = Uses()
    for seed, item in enumerate(ITEMS):
        reply = request_chat(Fillers(random.Random(seed), ("lamp", "chair", "spoon", "boat")), [item], uses).turns[1]
        assert [call.name for call in reply.calls] == [call.name for call in item.calls]
        assert item.calls or reply.content == item.answer


def test_chat_offers_what_it_calls():
    uses, lengths, most = Uses(), Counter(), 0
    for seed in range(1500):
        chat = request_chat(Fillers(random.Random(seed), ("lamp", "chair", "spoon", "boat")), ITEMS, uses)
        offered = [tool["function"]["name"] for tool in chat.tools]
        called = {call.name for turn in chat.turns for call in turn.calls}
        assert called <= set(offered)
        assert len(offered) == len(set(offered)) > 0
        assert all(tool == BY_NAME[name] for tool, name in zip(chat.tools, offered, strict=True))
        assert chat.turns[-1].role == "assistant"
        assert not re.search(r"\{\w+\}", chat.turns[-1].content)
        lengths[len(chat.turns)] += 1
        most = max(most, len(offered))
    assert most == 9
    assert lengths[4] > 300
