"""Owns chats in which the user tells something about themselves and asks for it later."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.handwritten import respoken, varied
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
from demo.listing import listed

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
PLACES = (
    "in the kitchen drawer", "under the bed", "in the car", "on the top shelf", "behind the door", "in my blue bag",
    "next to the lamp", "in the cellar", "on the window sill", "in the left pocket of my coat", "at the office",
    "beside the sofa", "in the bathroom", "under the stairs", "on the fridge", "in a box in the garage",
    "at my parents' house", "on the desk", "in the garden shed", "between two books",
)  # fmt: skip
BELONGINGS = listed(
    "key keys phone wallet passport umbrella guitar charger bag bike ladder drill camera tent map flute hat coat watch "
    "ring violin scarf hammer notebook"
)
LOCKED = (
    "door",
    "garage",
    "locker",
    "safe",
    "suitcase",
    "bike lock",
    "phone",
    "gate",
    "alarm",
    "office",
    "tablet",
    "diary",
)
NAMED = (
    "car",
    "boat",
    "house",
    "guitar",
    "robot",
    "bike",
    "team",
    "band",
    "computer",
    "plant",
    "bear",
    "doll",
    "garden",
)
FAVORITES = (
    "song", "movie", "animal", "flower", "band", "fruit", "game",
    "city", "tree", "singer", "team", "toy", "bird", "dessert"
)  # fmt: skip
EVENTS = (
    "meeting", "lesson", "interview", "exam", "flight", "train", "party", "concert", "call", "class", "match", "dinner"
)  # fmt: skip
BOUGHT = (
    "bike",
    "coat",
    "laptop",
    "sofa",
    "lamp",
    "table",
    "guitar",
    "camera",
    "tent",
    "phone",
    "bed",
    "desk",
    "watch",
)
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
FRAMED_SHARE = 0.3
CLAUSE = re.compile(r"(what|where|when|how|who|whom|which) ")
BEFORE_TELLING = (
    "by the way, ", "you should know that ", "just so you know, ", "for the record, ", "let me tell you something: ",
    "remember this: ", "something about me: ", "and ", "well, ", "i forgot to say, ", "oh, and ", "also, ",
    "before we begin, ", "fun fact: ", "please remember: ",
)  # fmt: skip
UNTOLD = (
    "You have not told me that yet. What is it?",
    "I do not know that, because you have not told me in this chat.",
    "I do not know yet. Please tell me!",
)


@dataclass(frozen=True)
class Fact:
    """Ways to tell it, replies, ways to ask for it later, answers, and the word that must be in the answer.

    `framed` are more ways to ask, which frames made; evaluation asks in none of them.
    """

    told: tuple[str, ...]
    replies: tuple[str, ...]
    asked: tuple[str, ...]
    answers: tuple[str, ...]
    key: str
    framed: tuple[str, ...]


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

    def fact(self, fill: Fillers) -> Fact:
        value, owner = self.draw(fill), fill.rng.choice(self.owners)
        names = {"v": value, "V": capitalised(value), "o": owner, "a": with_article(value)}
        texts = (tuple(t.format(**names) for t in parts.split(" | ")) for parts in self.texts)
        told, replies, asked, answers = texts
        more = tuple(dict.fromkeys(framed(self.phrases.format(o=owner)))) if self.phrases else ()
        return Fact(told, replies, asked, answers, value, tuple(text for text in more if text not in asked))

    def questions(self, owner: str) -> tuple[str, ...]:
        """They name no value."""
        return tuple(text.format(o=owner) for text in self.asked.split(" | "))

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


def any_name(fill: Fillers) -> str:
    """A name, a made-up word or now and then a thing's word, as pets have."""
    kind = fill.rng.random()
    if kind < 0.5:
        return fill.first_name()
    return fill.word() if kind < 0.92 or not fill.things else capitalised(fill.rng.choice(fill.half(list(fill.things))))


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
    "secret": lambda fill: str(fill.integer(*fill.rng.choice(((100, 999), (1000, 9999), (100000, 999999))))),
    "called": any_name,
    "favorite": any_name,
    "kept": one_of(PLACES),
    "trip": lambda fill: fill.rng.choice(fill.half(CITIES)) if fill.rng.random() < 0.4 else fill.word(),
    "time": lambda fill: f"{fill.rng.randint(1, 23)}:{fill.integer(10, 59)}",
    "price": Fillers.number,
    "friend": lambda fill: fill.full_name() if fill.rng.random() < 0.5 else any_name(fill),
}
OWNERS = {
    "pet": tuple(pet for pet in PETS if pet[0] not in "aeiou"),
    "relative": RELATIVES,
    "secret": LOCKED,
    "called": NAMED,
}
OWNERS |= {"favorite": FAVORITES, "kept": tuple(BELONGINGS), "time": EVENTS, "price": BOUGHT}


def read_kinds(path: Path) -> tuple[Kind, ...]:
    """A line with the kind's name, then its lines: told ">", replies "<", asked "?", answers "!".

    "@" has what frames ask for.
    """
    texts: dict[str, list[str]] = {}
    phrases: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line[:2] in ("> ", "< ", "? ", "! "):
            texts[list(texts)[-1]].append(line[2:])
        elif line[:2] == "@ ":
            phrases[list(texts)[-1]] = line[2:]
        else:
            texts[line] = []
    return tuple(
        Kind(name, *parts, DRAWS[name], OWNERS.get(name, ("",)), phrases.get(name, "")) for name, parts in texts.items()
    )


KINDS = read_kinds(Path(__file__).parents[1] / "text" / "recall.txt")
WEIGHTS = tuple({"name": 4.0, "pet": 2.0, "relative": 2.0, "home": 1.5}.get(kind.name, 1.0) for kind in KINDS)


def different_kinds(rng: random.Random, count: int) -> list[Kind]:
    """So many kinds of fact, each with its own questions."""
    chosen: dict[str, Kind] = {}
    while len(chosen) < count:
        kind = rng.choices(KINDS, WEIGHTS)[0]
        chosen[kind.name] = kind
    return list(chosen.values())


def told(fill: Fillers, fact: Fact) -> str:
    """Sometimes with words before it."""
    text = fill.phrasing(fact.told)
    return fill.rng.choice(BEFORE_TELLING) + text if fill.rng.random() < 0.15 and not fill.held_out else text


def telling(fill: Fillers, fact: Fact) -> tuple[Turn, ...]:
    return pairs(varied(fill.rng, told(fill, fact)), fill.rng.choice(fact.replies))


def telling_both(fill: Fillers, one: Fact, other: Fact) -> tuple[Turn, ...]:
    """Two facts in one message."""
    joint = fill.rng.choice((" and ", ", and ", ". ", ", also ", " and by the way "))
    return pairs(varied(fill.rng, told(fill, one) + joint + fill.phrasing(other.told)), fill.rng.choice(other.replies))


def asked(fill: Fillers, fact: Fact) -> str:
    if fact.framed and not fill.held_out and fill.rng.random() < FRAMED_SHARE:
        return varied(fill.rng, respoken(fill.rng, fill.rng.choice(fact.framed)))
    return varied(fill.rng, fill.reworded(fill.phrasing(fact.asked)))


def asking(fill: Fillers, fact: Fact) -> tuple[Turn, ...]:
    return pairs(asked(fill, fact), fill.rng.choice(fact.answers))


def recall_chat(fill: Fillers, fillers: list[tuple[Turn, ...]], between: int) -> tuple[Conversation, list[str]]:
    """Facts are told, `between` other exchanges follow, then each fact is asked -> chat and the keys of its answers."""
    rng = fill.rng
    facts = [kind.fact(fill) for kind in different_kinds(rng, rng.choice((1, 1, 2, 3)))]
    turns: list[Turn] = [turn for fact in facts for turn in telling(fill, fact)]
    if len(facts) == 2 and not fill.held_out and rng.random() < 0.4:
        turns = list(telling_both(fill, *facts))
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
