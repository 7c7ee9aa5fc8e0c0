"""Owns chats in which the user tells something about themselves and asks for it later."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.handwritten import varied
from demo.data.words import (
    CITIES,
    COLORS,
    DAYS,
    FOODS,
    HOBBIES,
    JOBS,
    LANGUAGES,
    MONTHS,
    PETS,
    Fillers,
    capitalised,
    with_article,
)  # fmt: skip

CARS = ("Volvo", "Toyota", "Fiat", "Ford", "Honda", "Mazda", "Skoda", "Opel", "Tesla", "Renault", "Kia", "Jeep", "Audi")
PLANS = (
    "visit an aunt", "go hiking", "paint the kitchen", "bake a cake", "go to the zoo", "clean the garage",
    "see a movie", "plant tomatoes", "repair a bike", "go to a concert", "sleep a lot", "play tennis",
    "go to the beach", "read a novel", "cook for some friends", "go fishing",
)  # fmt: skip
ALLERGIES = ("nuts", "milk", "cats", "eggs", "pollen", "fish", "dust", "apples", "wheat", "strawberries", "soy", "bees")
BOOKS = (
    "Emma",
    "The Hobbit",
    "Dracula",
    "Momo",
    "Treasure Island",
    "Moby Dick",
    "Pinocchio",
    "Peter Pan",
    "Oliver Twist",
)
DRINKS = ("coffee", "green tea", "lemonade", "apple juice", "hot chocolate", "cola", "milk", "mint tea", "orange juice")
SPORTS = ("tennis", "football", "swimming", "volleyball", "judo", "rowing", "basketball", "boxing", "golf", "hockey")
RELATIVES = ("sister", "brother", "best friend", "wife", "husband", "son", "daughter", "boss", "neighbor", "teacher")
SUBJECTS = ("biology", "history", "physics", "music", "art", "geography", "chemistry", "economics", "medicine", "law")
UNTOLD = (
    "You have not told me that yet. What is it?",
    "I do not know that, because you have not told me in this chat.",
    "I do not know yet. Please tell me!",
)


@dataclass(frozen=True)
class Fact:
    """Ways to tell it, replies, ways to ask for it later, answers, and the word that must be in the answer."""

    told: tuple[str, ...]
    replies: tuple[str, ...]
    asked: tuple[str, ...]
    answers: tuple[str, ...]
    key: str


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

    def fact(self, fill: Fillers) -> Fact:
        value, owner = self.draw(fill), fill.rng.choice(self.owners)
        names = {"v": value, "V": capitalised(value), "o": owner, "a": with_article(value)}
        texts = (tuple(t.format(**names) for t in parts.split(" | ")) for parts in self.texts)
        told, replies, asked, answers = texts
        return Fact(told, replies, asked, answers, value)

    def questions(self, owner: str) -> tuple[str, ...]:
        """They name no value."""
        return tuple(text.format(o=owner) for text in self.asked.split(" | "))

    @property
    def texts(self) -> tuple[str, str, str, str]:
        return self.told, self.replies, self.asked, self.answers


def any_name(fill: Fillers) -> str:
    return fill.first_name() if fill.rng.random() < 0.65 else fill.word()


def one_of(words: list[str] | tuple[str, ...]) -> Callable[[Fillers], str]:
    return lambda fill: fill.rng.choice(fill.half(list(words)))


def town(fill: Fillers) -> str:
    return fill.place() if fill.rng.random() < 0.6 else fill.rng.choice(fill.half(CITIES))


DRAWS: dict[str, Callable[[Fillers], str]] = {
    "name": any_name,
    "home": town,
    "color": one_of(COLORS),
    "food": one_of(FOODS),
    "pet": any_name,
    "relative": any_name,
    "job": one_of(JOBS),
    "age": lambda fill: str(fill.integer(7, 95)),
    "birthday": lambda fill: f"{fill.integer(1, 30)} {fill.rng.choice(MONTHS[::2])}",
    "hobby": one_of([hobby for hobby in HOBBIES if hobby.endswith("ing")]),
    "language": one_of(LANGUAGES),
    "car": one_of(CARS),
    "plan": one_of(PLANS),
    "allergy": one_of(ALLERGIES),
    "number": Fillers.number,
    "book": one_of(BOOKS),
    "drink": one_of(DRINKS),
    "sport": one_of(SPORTS),
    "subject": one_of(SUBJECTS),
    "appointment": one_of(DAYS),
}
OWNERS = {"pet": tuple(pet for pet in PETS if pet[0] not in "aeiou"), "relative": RELATIVES}


def read_kinds(path: Path) -> tuple[Kind, ...]:
    """A line with the kind's name, then its lines: told ">", replies "<", asked "?", answers "!"."""
    texts: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line[:2] in ("> ", "< ", "? ", "! "):
            texts[list(texts)[-1]].append(line[2:])
        else:
            texts[line] = []
    return tuple(Kind(name, *parts, DRAWS[name], OWNERS.get(name, ("",))) for name, parts in texts.items())


KINDS = read_kinds(Path(__file__).parents[1] / "text" / "recall.txt")
WEIGHTS = tuple({"name": 4.0, "pet": 2.0, "relative": 2.0, "home": 1.5}.get(kind.name, 1.0) for kind in KINDS)


def different_kinds(rng: random.Random, count: int) -> list[Kind]:
    """So many kinds of fact, each with its own questions."""
    chosen: dict[str, Kind] = {}
    while len(chosen) < count:
        kind = rng.choices(KINDS, WEIGHTS)[0]
        chosen[kind.name] = kind
    return list(chosen.values())


def telling(fill: Fillers, fact: Fact) -> tuple[Turn, ...]:
    return pairs(varied(fill.rng, fill.phrasing(fact.told)), fill.rng.choice(fact.replies))


def asked(fill: Fillers, fact: Fact) -> str:
    return varied(fill.rng, fill.reworded(fill.phrasing(fact.asked)))


def asking(fill: Fillers, fact: Fact) -> tuple[Turn, ...]:
    return pairs(asked(fill, fact), fill.rng.choice(fact.answers))


def recall_chat(fill: Fillers, fillers: list[tuple[Turn, ...]], between: int) -> tuple[Conversation, list[str]]:
    """Facts are told, `between` other exchanges follow, then each fact is asked -> chat and the keys of its answers."""
    rng = fill.rng
    facts = [kind.fact(fill) for kind in different_kinds(rng, rng.choice((1, 1, 2, 3)))]
    turns: list[Turn] = [turn for fact in facts for turn in telling(fill, fact)]
    chosen = rng.sample(fillers, between) if between <= len(fillers) else rng.choices(fillers, k=between)
    turns += [turn for exchange in chosen for turn in exchange]
    order = rng.sample(facts, len(facts))
    for fact in order:
        turns += asking(fill, fact)
    return Conversation("recall", tuple(turns), learns_questions=True), [fact.key for fact in order]


def untold_chat(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> Conversation:
    """One fact is told, another one is asked for."""
    told, other = (kind.fact(fill) for kind in different_kinds(fill.rng, 2))
    turns = (*telling(fill, told), *fill.rng.choice(fillers))
    question = pairs(asked(fill, other), fill.rng.choice(UNTOLD))
    return Conversation("recall", (*turns, *question), learns_questions=True)


def around(fill: Fillers, chat: Conversation) -> Conversation:
    """The chat, such as one with tools or a document, with a fact told before it and asked after it."""
    fact = different_kinds(fill.rng, 1)[0].fact(fill)
    turns = (*telling(fill, fact), *chat.turns, *asking(fill, fact))
    return replace(chat, turns=turns)
