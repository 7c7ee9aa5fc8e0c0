"""Owns the fillers of tool requests: a small grammar of file names, commands, messages, and the slots of one request.

A list marked with * in text/tools_words.txt is split: every fourth entry is left to evaluation.
"""

import ast
import json
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from demo.data.strings import ODD, expression
from demo.data.words import CITIES, DAYS, MONTHS, Fillers, capitalised
from demo.listing import listed

SLOT = re.compile(r"\{([A-Za-z_]+\d?)\}|\{(\d+)-(\d+)\}")
Number = Fraction | float
BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
FUNCTIONS: dict[str, Callable[[Number], Number]] = {
    "sqrt": math.sqrt,
    "abs": abs,
    "round": round,
    "floor": math.floor,
    "ceil": math.ceil,
}
ODD_SHARE, ODD_NAME_SHARE = 0.3, 0.08  # of the fillers in training
ONES = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
QUOTABLE = {"path", "folder", "query", "topic", "command"}
NUMBERS = {"a", "b", "c", "d", "n", "m", "amount", "minutes", "people"}
NUMBERS_AS_WORDS = {"n", "m", "minutes", "people"}


def place(fill: Fillers) -> str:
    if fill.rng.random() < 0.5:
        return fill.rng.choice(fill.half(CITIES))
    return fill.word() + fill.rng.choice(("", "", " Hill", " Bay", "ton", "ville", "burg"))


CLOSED = frozenset(listed("rootdir program gitword simple_command option special side saying"))


class Vocabulary:
    def __init__(self, path: Path) -> None:
        self.lists: dict[str, tuple[list[str], list[str]]] = {}
        self.open: set[str] = set()  # lists for whose words a word of the lexicon may stand in training
        for line in path.read_text(encoding="utf-8").splitlines():
            name, words = line.split(": ", 1)
            options = words.split(" ; ")
            is_split = name.endswith("*")
            self.open |= {name[:-1]} - CLOSED if is_split else set()
            kept = [option for index, option in enumerate(options) if index % 4] if is_split else options
            self.lists[name.rstrip("*")] = (kept, options[::4] if is_split else options)
        self.made: dict[str, Callable[[Fillers], str]] = {
            "word": Fillers.word,
            "expression": expression,
            "lowword": lambda fill: fill.word().lower(),
            "first_name": Fillers.first_name,
            "lowname": lambda fill: fill.first_name().lower(),
            "place": place,
            "thing": lambda fill: fill.rare(fill.rng.choice(fill.half(list(fill.things)))),
            "day": lambda fill: fill.rng.choice(DAYS),
            "month": lambda fill: fill.rng.choice(MONTHS),
            "lowmonth": lambda fill: fill.rng.choice(MONTHS).lower(),
        }

    def left_out(self) -> set[str]:
        """Words that only evaluation may draw."""
        kept = {
            word for training, _ in self.lists.values() for text in training for word in re.findall(r"[a-z]+", text)
        }
        every = {word for _, held in self.lists.values() for text in held for word in re.findall(r"[a-z]+", text)}
        return every - kept

    def draw(self, fill: Fillers, name: str) -> str:
        """A filler; Name is capitalised, NAME in capitals."""
        known = name.lower()
        share = ODD_NAME_SHARE if known == "first_name" else ODD_SHARE
        if known in ODD and not fill.held_out and fill.rng.random() < share:
            return ODD[known](fill)
        if known in self.made:
            text = self.made[known](fill)
        else:
            text = self.expand(fill, fill.rng.choice(self.lists[known][fill.held_out]))
            text = fill.rare(text) if known in self.open else text
        if len(name) > 1 and name.isupper():
            return text.upper()
        return capitalised(text) if name[0].isupper() else text

    def expand(self, fill: Fillers, text: str) -> str:
        """Every slot of the text gets a fresh filler."""
        return SLOT.sub(lambda slot: self.draw_slot(fill, slot), text)

    def draw_slot(self, fill: Fillers, slot: re.Match[str]) -> str:
        if slot[2]:
            return str(fill.integer(int(slot[2]), int(slot[3])))
        return self.draw(fill, slot[1].rstrip("0123456789"))


class Slots:
    """The fillers of one request: drawn when first needed, the same ever after in call, result and answer."""

    def __init__(self, vocabulary: Vocabulary, fill: Fillers, values: dict[str, str] | None = None) -> None:
        self.vocabulary, self.fill = vocabulary, fill
        self.values = dict(values or {})
        self.names: tuple[str, ...] = ()  # of the listing, where there is one

    def value(self, name: str) -> str:
        if name not in self.values:
            if name in ("listing", "listed", "json_listing", "count"):
                self.values |= self.folder_contents()
            elif name == "result":
                self.values[name] = self.result()
            else:
                self.values[name] = self.vocabulary.draw(self.fill, name.rstrip("0123456789"))
        return self.values[name]

    def text(self, template: str) -> str:
        return SLOT.sub(lambda slot: self.value(slot[1]) if slot[1] else slot[0], template)

    def shown(self, template: str) -> str:
        """As a person writes it: names in quotes or not, small numbers as words, big ones with commas."""

        def show(slot: re.Match[str]) -> str:
            return self.show(slot[1], template[: slot.start()], template[slot.end() :])

        return SLOT.sub(show, template)

    def show(self, name: str, before: str, after: str) -> str:
        value, rng, kind = self.value(name), self.fill.rng, name.rstrip("0123456789")
        is_alone = before[-1:] in ("", " ") and after[:1] in ("", " ", ".", "?", ",")
        if kind in QUOTABLE and is_alone and rng.random() < 0.2:
            marks = [mark for mark in "\"'`" if mark not in value] or [""]
            mark = rng.choice(marks)
            return mark + value + mark
        if kind in NUMBERS and is_alone and value.isdigit():
            if is_small_and_spoken(kind, value, before, after) and rng.random() < 0.12:
                return ONES[int(value)] if before else capitalised(ONES[int(value)])
            if len(value) > 3 and rng.random() < 0.12:
                return f"{int(value):,}"
        return value

    def folder_contents(self) -> dict[str, str]:
        """One to five files; now and then a folder among them, and then there is no first and last file."""
        rng = self.fill.rng
        names = [self.vocabulary.draw(self.fill, "file") for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5)))]
        has_folder = rng.random() < 0.2
        names += [self.vocabulary.draw(self.fill, "dir")] if has_folder else []
        self.names = tuple(dict.fromkeys(names))
        *most, last = self.names
        contents = {"listed": ", ".join(most) + " and " + last if most else last}
        contents |= {"json_listing": json.dumps(self.names, ensure_ascii=False), "count": str(len(self.names))}
        contents["listing"] = rng.choice(("\n", "\n", ", ")).join(self.names)
        return contents if has_folder else {**contents, "first": self.names[0], "last": last}

    def result(self) -> str:
        """The value of the expression, as a calculator shows it."""
        value = evaluated(ast.parse(self.values["expression"], mode="eval").body)
        if value == int(value):
            return str(int(value))
        return str(round(float(value), self.fill.rng.choice((2, 4, 6))))


def is_small_and_spoken(kind: str, value: str, before: str, after: str) -> bool:
    """Whether the number may be written as a word: not beside a sign of arithmetic."""
    beside = before.rstrip()[-1:] + after.lstrip()[:1]
    return kind in NUMBERS_AS_WORDS and int(value) < len(ONES) and not set(beside) & set("+-*/x×÷=()")


def evaluated(node: ast.expr) -> Number:
    """Exact, but for roots."""
    if isinstance(node, ast.Constant):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp):
        return -evaluated(node.operand)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return FUNCTIONS[node.func.id](evaluated(node.args[0]))
    assert isinstance(node, ast.BinOp)
    return BINARY[type(node.op)](evaluated(node.left), evaluated(node.right))
