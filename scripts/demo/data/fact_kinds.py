"""Owns the kinds of fact that users tell: reading text/recall*.txt, and a fact drawn with its ways to tell and ask.

Evaluation draws from `KINDS` alone; `MORE_KINDS` and `OTHERS` are for training.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from demo.data.composed import alternatives
from demo.data.fact_values import DRAWS, OWNERS, VALUES
from demo.data.handwritten import gist
from demo.data.words import Fillers, capitalised, with_article

NOUN_FRAMES = (
    "what is {p}", "what's {p}", "whats {p}",
    "what was {p}", "what was {p} again", "and what is {p}", "what did i say is {p}",
    "{p}", "name {p}", "{p} is what", "what have i told you about {p}", "what did i tell you about {p}",
    "do you have {p} in mind", "let me test you: what is {p}", "what is {p} again",
)  # fmt: skip
FRAMES = (
    "do you remember {p}", "tell me {p}", "can you tell me {p}",
    "do you know {p}", "do you still know {p}", "i forgot {p}",
    "remind me of {p}", "please tell me {p}", "could you repeat {p}",
    "say {p}", "do you recall {p}", "did you remember {p}",
    "can you remember {p}", "i want to know {p}", "have you kept {p} in mind", "are you able to tell me {p}",
    "what do you know about {p}", "did i tell you {p}", "please repeat {p}", "would you tell me {p}", "repeat {p}",
    "you know {p}, right", "i wonder if you remember {p}", "do you happen to know {p}", "once more, {p}",
    "let us see if you know {p}", "i bet you forgot {p}",
    "have i told you {p}", "try to remember {p}", "tell me again {p}",
)  # fmt: skip
# Ways to tell what a noun phrase {p} ("my locker number") is, for kinds of text/recall_more.txt.
TELLING_FRAMES = (
    "{p} is {v}", "{v} is {p}", "{p}: {v}", "as for {p}, it is {v}", "if anybody asks for {p}, it's {v}",
    "please note {p}: {v}", "write down {v} as {p}", "{p} has changed, it is {v} now", "you need {p}, which is {v}",
    "i just found out {p}: {v}", "{p}, before i forget: {v}", "don't forget {p}, {v}", "remember {v}, that is {p}",
    "yesterday i learned {p}: {v}", "my notes say that {p} is {v}", "keep in mind that {p} is {v}", "{p}? {v}",
    "{p} happens to be {v}", "about {p}: it's {v}", "let me tell you {p}, {v}", "i looked up {p}: {v}",
    "since today {p} is {v}", "in case you need {p}, it's {v}", "they told me {p}: {v}", "it says here that {p} is {v}",
)  # fmt: skip
REPLIES = (
    "Got it, I will remember that. | Noted: {v}. | Good to know! | All right, {v}. | Thank you, I will keep it in mind."
    " | I will remember {v}. | {v}, I see. | Thanks for telling me."
)
CLAUSE = re.compile(r"(what|where|when|how|who|whom|which) ")


@dataclass(frozen=True)
class Fact:
    """Ways to tell it, replies, ways to ask for it later, answers, and the word that must be in the answer.

    `framed` are more ways to ask, which frames made; evaluation uses none of them, nor what is `more_`.
    """

    told: tuple[str, ...]
    replies: tuple[str, ...]
    asked: tuple[str, ...]
    answers: tuple[str, ...]
    key: str
    framed: tuple[str, ...]
    more_told: tuple[str, ...] = ()
    more_asked: tuple[str, ...] = ()
    owner: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Kind:
    """Texts of one kind of fact with {v} for its value, {V} capitalised, {o} for whose it is ("sister", "dog")."""

    name: str
    told: str
    replies: str
    asked: str
    answers: str
    draw: Callable[[Fillers], str]
    owners: tuple[str, ...] = ("",)
    phrases: str = ""
    more_told: tuple[tuple[str, ...], ...] = ()
    more_asked: tuple[tuple[str, ...], ...] = ()

    def fact(self, fill: Fillers, owner: str = "") -> Fact:
        value, owner = self.draw(fill), owner or fill.rng.choice(self.owners)
        names = {"v": value, "V": capitalised(value), "o": owner, "a": with_article(value)}
        names["O"] = capitalised(owner) if owner else ""
        texts = (tuple(t.format(**names) for t in parts.split(" | ")) for parts in self.texts)
        told, replies, asked, answers = texts
        more = tuple(dict.fromkeys(framed(self.phrases.format(o=owner)))) if self.phrases else ()
        more = tuple(text for text in more if text not in asked)
        fact = Fact(told, replies, asked, answers, value, more, owner=owner, kind=self.name)
        if fill.held_out:
            return fact
        drawn = [tuple(fill.rng.choice(w).format(**names) for w in ways) for ways in (self.more_told, self.more_asked)]
        return replace(fact, more_told=drawn[0], more_asked=drawn[1])

    @property
    def texts(self) -> tuple[str, str, str, str]:
        return self.told, self.replies, self.asked, self.answers


def framed(phrases: str) -> list[str]:
    """Every way to ask for what the phrases ("my name; who i am") stand for."""
    asked = []
    for phrase in phrases.split("; "):
        frames = FRAMES if CLAUSE.match(phrase) else (*NOUN_FRAMES, *FRAMES)
        asked += [frame.replace("{p}", phrase) for frame in frames]
    return asked


def read_kinds(path: Path) -> tuple[Kind, ...]:
    """A line with the kind's name, then its lines: told ">", replies "<", asked "?", answers "!".

    "@" has what frames ask for; "+>" and "+?" have more ways to tell and to ask, for training only.
    """
    return tuple(read_kind(name, marked) for name, marked in marked_lines(path).items())


def marked_lines(path: Path) -> dict[str, dict[str, str]]:
    """Name of a kind -> mark -> its line."""
    lines: dict[str, dict[str, str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        mark, _, text = line.partition(" ")
        if mark in (">", "<", "?", "!", "@", "+>", "+?"):
            lines[list(lines)[-1]][mark] = text
        else:
            lines[line] = {}
    return lines


def read_more_kinds(path: Path) -> tuple[Kind, ...]:
    """Kinds named "locker = number", the second word says what is drawn; told in frames too, replied to as all are."""
    kinds = []
    for head, marked in marked_lines(path).items():
        name, drawn = head.split(" = ")
        phrases = [phrase for phrase in marked.get("@", "").split("; ") if phrase and not CLAUSE.match(phrase)]
        ways = tuple((frame.replace("{p}", phrase),) for frame in TELLING_FRAMES for phrase in phrases[:1])
        texts = (marked[">"], REPLIES, marked["?"], marked["!"])
        kinds.append(Kind(name, *texts, VALUES[drawn], phrases=marked.get("@", ""), more_told=ways))
    return tuple(kinds)


def read_kind(name: str, marked: dict[str, str]) -> Kind:
    told, replies, asked, answers = (marked[mark] for mark in (">", "<", "?", "!"))
    more = [more_ways(marked.get("+" + mark, ""), marked[mark].split(" | ")) for mark in (">", "?")]
    return Kind(
        name, told, replies, asked, answers, DRAWS[name], OWNERS.get(name, ("",)), marked.get("@", ""), more[0], more[1]
    )


def more_ways(text: str, usual: list[str]) -> tuple[tuple[str, ...], ...]:
    """Each part in its variants, without those that evaluation uses in other order or with other small words."""
    held_out = Fillers(random.Random(0), (), held_out=True).own_phrasings(usual)
    examined = {gist(option) for option in held_out}
    ways = [tuple(t for t in alternatives(part) if gist(t) not in examined) for part in text.split(" | ") if part]
    return tuple(filter(None, ways))


KINDS = read_kinds(Path(__file__).parents[1] / "text" / "recall.txt")
OTHERS = read_kinds(Path(__file__).parents[1] / "text" / "recall_others.txt")
OWNED = tuple(kind for kind in KINDS if len(kind.owners) > 1)
WEIGHTS = tuple({"name": 4.0, "pet": 2.0, "relative": 2.0, "home": 1.5}.get(kind.name, 1.0) for kind in KINDS)
MORE_KINDS = read_more_kinds(Path(__file__).parents[1] / "text" / "recall_more.txt")
MORE_WEIGHTS = (*WEIGHTS, *(0.4 for _ in MORE_KINDS))
