"""Owns the requests of text/requests.txt, written by hand: their reading, and a chat around one of them.

A block is the request, then "= tool name=value; name=value" for each call ("= tool {...}" where a value has a
semicolon) or "! answer" where no tool is called. The chats offer the application's own schemas. Most of the requests
get other names and numbers, in words and calls alike, so that the calls have to be copied.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from demo.data.conversation import Call, Conversation, Turn, pairs
from demo.data.tool_schemas import REGISTRY, Offer
from demo.data.tool_uses import Use, Uses, decapitalised, turns_of
from demo.data.words import Fillers, capitalised
from demo.listing import listed

IMPERATIVES = listed(
    "add ask calculate change check compile compute copy create delete execute explain fetch fill find format get give "
    "grep install keep list look make open pack print pull put read rename replace run save search send set show sort "
    "split start store suggest summarise take tell translate try type use work write"
)
QUESTION_WORDS = listed(
    "what what's which where where's who whose why how when is are am do does did can could would should has may"
)
# Words that are small inside a sentence.
SMALL = frozenset(IMPERATIVES + QUESTION_WORDS) | frozenset(
    listed(
        "my our the there there's before in on if each please somebody somewhere half one let let's we "
        "from go a anything leave pose"
    )
)
GREETED = frozenset(listed("hi hey hello good thank thanks ok bye sorry never great yes nice yes have"))
BEGGED_ASIDE = frozenset(listed("can could would"))
ARGUMENT = re.compile(r"(\w+)=(.*)", re.S)
OFFERS = {tool.name: tool.offer(random.Random(0), is_own=True) for tool in REGISTRY}
# Their drawn results fit any such call; a drawn passage or output would seldom be what was asked for.
HAS_RESULTS = frozenset(OFFERS) - {"search_document", "ask_aside", "run_command"}


FRESH_SHARE = 0.65
# Parameter -> the list of text/tools_words.txt that has such values.
FRESH_LISTS = {"path": "path", "folder": "folder", "query": "query", "command": "command", "content": "content"}
NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w]|[.,:/-]\d)")
KEPT_NUMBERS = frozenset(("2", "3", "4", "7", "10", "12", "14", "24", "52", "60", "100", "365", "1000"))


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


def first_word(text: str) -> str:
    return text.split()[0].strip(",.!?:;").lower()


def kept_values(request: Request) -> tuple[str, ...]:
    """The arguments that stand in the request word for word."""
    values = [value for call in request.calls for value in call.arguments.values()]
    return tuple(value for value in values if value not in ("", ".") and value in request.asked)


def with_fresh_values(uses: Uses, fill: Fillers, request: Request) -> Request:
    """The same request about other files, words and numbers; as it is where two of its values overlap."""
    values = {value: name for call in request.calls for name, value in call.arguments.items() if name in FRESH_LISTS}
    values = {value: name for value, name in values.items() if len(value) > 2 and request.asked.count(value) == 1}
    every = [value for call in request.calls for value in call.arguments.values()]
    if any(value != other and value in other for value in values for other in every):
        return request
    fresh = {value: uses.vocabulary.draw(fill, FRESH_LISTS[name]) for value, name in values.items()}
    expressions = " ".join(call.arguments.get("expression", "") for call in request.calls)
    fresh |= fresh_numbers(fill, request.asked, expressions)
    return replace(
        request, asked=put_for(fresh, request.asked), calls=tuple(with_arguments(c, fresh) for c in request.calls)
    )


def fresh_numbers(fill: Fillers, asked: str, expressions: str) -> dict[str, str]:
    """For numbers of the expressions that the request has as digits: others of the same length."""
    computed = {number for number in re.findall(r"\d+(?:\.\d+)?", expressions) if number not in KEPT_NUMBERS}
    fresh = {}
    for said in NUMBER.findall(asked):
        plain = said.replace(",", "")
        if plain in computed:
            number = "".join(fill.rng.choice("123456789") if sign.isdigit() else sign for sign in plain)
            fresh[plain] = number
            if said != plain:
                fresh[said] = f"{int(number):,}" if number.isdigit() else number
    return fresh


def put_for(fresh: dict[str, str], text: str) -> str:
    """Whole words and numbers exchanged, all at once."""
    if not fresh:
        return text
    longest_first = sorted(fresh, key=len, reverse=True)
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w|[.,]\d)")
    return pattern.sub(lambda match: fresh[match[0]], text)


def with_arguments(call: Call, fresh: dict[str, str]) -> Call:
    changed = {
        name: put_for(fresh, value) if name == "expression" else fresh.get(value, value)
        for name, value in call.arguments.items()
    }
    return replace(call, arguments=changed)


class Wording:
    """A request as another person would type it; the texts that the calls take from it stay untouched."""

    def __init__(self, rng: random.Random, request: Request) -> None:
        self.rng, self.text = rng, request.asked
        self.kept = kept_values(request)

    def varied(self) -> str:
        starts_free = not any(self.text.startswith(value) for value in self.kept)
        for chance, change in ((0.15, self.ended), (0.15, self.begged)):
            if self.rng.random() < chance:
                self.take(change())
        for chance, change in ((0.2, self.cased), (0.12, self.greeted)):
            if starts_free and self.rng.random() < chance:
                self.take(change())
        return self.text

    def take(self, text: str) -> None:
        if all(text.count(value) == self.text.count(value) for value in self.kept):
            self.text = text

    @property
    def ends_free(self) -> bool:
        """Whether a sign at the end could not be read as an argument's."""
        return not any(self.text.rstrip("\"'`.?!").endswith(value.rstrip(".?!")) for value in self.kept)

    def ended(self) -> str:
        if self.text.endswith((".", "?")) and not self.text.endswith(("..", " .")):
            return self.text[:-1]
        if not self.ends_free or self.text.endswith((".", "?", "!")):
            return self.text
        return self.text + ("?" if first_word(self.text) in QUESTION_WORDS else ".")

    def begged(self) -> str:
        text, word = self.text, first_word(self.text)
        if "please" in text.lower():
            return text
        if word in IMPERATIVES and not any(text.startswith(value) for value in self.kept):
            return "Please " + decapitalised(text)
        is_short = not re.search(r"[.?!:] ", text) and self.ends_free
        return text[:-1] + ", please?" if word in BEGGED_ASIDE and is_short and text.endswith("?") else text

    def cased(self) -> str:
        if self.text[0].islower():
            return capitalised(self.text)
        return decapitalised(self.text) if first_word(self.text) in SMALL else self.text

    def greeted(self) -> str:
        word = first_word(self.text)
        if word in GREETED:
            return self.text
        greeting = self.rng.choice(("Hi, ", "Hi! ", "Hello, ", "Hey, "))
        return greeting + (decapitalised(self.text) if greeting[-2] == "," and word in SMALL else self.text)


def use_of(uses: Uses, fill: Fillers, asked: str, call: Call) -> Use:
    offer = OFFERS[call.name]
    arguments = {slot: call.arguments[name] for slot, name in offer.names.items()}
    while True:
        use = uses.answered(Use(offer, asked, call, arguments, uses.slots(fill, arguments)))
        quotes_a_line = call.name == "search_files" and ":" in use.result
        if not quotes_a_line or call.arguments["query"] in use.result:
            return use


def offered(rng: random.Random, request: Request) -> list[Offer]:
    """The tools that the request needs and up to eight others, in any order; at least one."""
    needed = {call.name for call in request.calls}
    others = [name for name in OFFERS if name not in needed]
    fewest = 0 if needed else 1
    names = [*needed, *rng.sample(others, rng.randint(fewest, min(8, len(others))))]
    return [OFFERS[name] for name in rng.sample(sorted(names), len(names))]


def request_chat(fill: Fillers, items: Sequence[Request], uses: Uses) -> Conversation:
    """One of the items as a chat, which ends with the calls or, half the time, with results and an answer."""
    request = fill.rng.choice(items)
    request = with_fresh_values(uses, fill, request) if fill.rng.random() < FRESH_SHARE else request
    asked = Wording(fill.rng, request).varied()
    turns: tuple[Turn, ...]
    if request.answer:
        turns = pairs(asked, request.answer)
    elif {call.name for call in request.calls} <= HAS_RESULTS and fill.rng.random() < 0.5:
        turns = turns_of(*(use_of(uses, fill, asked, call) for call in request.calls))
    else:
        turns = Turn("user", asked), Turn("assistant", calls=request.calls)
    schemas = tuple(offer.schema for offer in offered(fill.rng, request))
    return Conversation("tool", turns, tools=schemas, answer_loss="double")
