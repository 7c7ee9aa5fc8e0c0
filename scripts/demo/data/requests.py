"""Owns the requests of text/requests.txt, written by hand: their reading, and a chat around one of them.

A block is the request, then "= tool name=value; name=value" for each call ("= tool {...}" where a value has a
semicolon) or "! answer" where no tool is called. The chats offer the application's own schemas.
"""

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

from demo.data.conversation import Call, Conversation, Turn
from demo.data.tool_schemas import EVERYDAY, REGISTRY, TOOLS, Offer
from demo.data.tool_uses import Uses
from demo.data.words import Fillers

GREETINGS = ("Hi, ", "Hi! ", "Hello, ", "Hey, ")
GREETED = re.compile(r"(hi|hey|hello|good|dear|thank|thanks|ok|yo|morning|bye|greetings)\b", re.I)
CAN_BE_BEGGED = re.compile(
    r"(add|ask|calculate|check|compute|create|delete|display|execute|fetch|find|get|give|go|grep|have|let|list|look|make"
    r"|open|print|pull|put|read|run|save|scan|search|show|start|store|summarise|take|tell|translate|try|use|work|write)\b",
    re.I,
)
ARGUMENT = re.compile(r"(\w+)=(.*)", re.S)
# Tools with the sections of results that need nothing but the call's own arguments.
FREE_RESULTS = ("write_file", "run_command", "clock", "list_files", "search_files")


@dataclass(frozen=True)
class Request:
    asked: str
    calls: tuple[Call, ...] = ()
    answer: str = ""


def parse_call(line: str) -> Call:
    name, _, stated = line.partition(" ")
    if stated.startswith("{"):
        return Call(name, json.loads(stated))
    arguments = [ARGUMENT.fullmatch(part) for part in stated.split("; ")] if stated else []
    if None in arguments:
        raise ValueError(f"not name=value: {line}")
    return Call(name, {match[1]: match[2] for match in arguments if match})


def parse_request(block: str) -> Request:
    asked, *rest = block.split("\n")
    if not rest or any(line[:2] not in ("= ", "! ") for line in rest):
        raise ValueError(f"neither a call nor an answer: {block}")
    calls = tuple(parse_call(line[2:]) for line in rest if line.startswith("= "))
    answers = [line[2:] for line in rest if line.startswith("! ")]
    if len(answers) + bool(calls) != 1:
        raise ValueError(f"calls or one answer: {block}")
    return Request(asked, calls, answers[0] if answers else "")


def read_requests(path: Path) -> tuple[Request, ...]:
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    return tuple(parse_request(block) for block in blocks)
