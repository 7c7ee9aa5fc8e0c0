"""Owns the score on the hand-written items of tests/demo_evaluation: no generator makes them, nobody trains on them."""

from dataclasses import asdict
from typing import Any

from demo.answering import Answer
from demo.data.conversation import Conversation, Turn
from demo.questions import put
from tests.demo_evaluation import items, scoring

MAX_TOKENS = 140


def natural_scores(answer: Answer, misses: list[dict[str, str]]) -> dict[str, float]:
    """Shares of right sentences, answers, refusals and tool calls."""
    documents, missing, requests = items.documents(), items.missing(), items.tool_requests()
    replies = answer([put(item.prompt) for item in documents], MAX_TOKENS)
    quoted = [scoring.quotes_sentence(item, reply) for item, reply in zip(documents, replies, strict=True)]
    keyed = [scoring.contains_answer(item, reply) for item, reply in zip(documents, replies, strict=True)]
    refusals = answer([put(item.prompt) for item in missing], MAX_TOKENS)
    refused = [scoring.says_it_is_missing(reply) for reply in refusals]
    schemas = items.tool_schemas()
    chats = [tool_chat(item, schemas) for item in requests]
    calls = answer(chats, MAX_TOKENS)
    right = [scoring.makes_accepted_calls(item, reply, schemas) for item, reply in zip(requests, calls, strict=True)]
    for group, replied, passed in (
        (documents, replies, quoted),
        (missing, refusals, refused),
        (requests, calls, right),
    ):
        for item, reply, ok in zip(group, replied, passed, strict=True):
            misses += [] if ok else [{"score": "natural", "prompt": item.id, "answer": reply}]
    return {
        "sentence quoted": share(quoted),
        "answer contained": share([ok for ok in keyed if ok is not None]),
        "not in document": share(refused),
        "refused though in document": share([scoring.says_it_is_missing(reply) for reply in replies]),
        "tool call right": share(right),
    }


def tool_chat(item: items.ToolItem, schemas: dict[str, Any]) -> Conversation:
    offered = tuple({"type": "function", "function": asdict(schemas[name])} for name in item.tools)
    return Conversation("tool", (Turn("user", item.request),), tools=offered)


def share(passed: list[bool]) -> float:
    return round(sum(passed) / len(passed), 3)
