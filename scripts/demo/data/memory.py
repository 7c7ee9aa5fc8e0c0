"""Owns chats in which the user tells something about themselves and asks for it later.

Evaluation (`Fillers.held_out`) draws plain chats, its own values and its own phrasings; training also draws what stands
in lines with "+", made-up values, and chats where a fact is corrected or stands beside those of others.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from demo.data.composed import alternatives
from demo.data.conversation import Conversation, Turn, pairs
from demo.data.handwritten import gist, respoken, varied
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
FRAMED_SHARE, MORE_ASKED_SHARE, MORE_TOLD_SHARE = 0.3, 0.4, 0.5
STAGED_SHARE = 0.35  # of the chats in training
CHATTER_SHARE = 0.25  # of the facts told in training; not where any name or number could be what is asked for
VAGUE = ("friend", "number")
MADE_SHARE = 0.5  # of the values that a list has, in training
CLAUSE = re.compile(r"(what|where|when|how|who|whom|which) ")
BEFORE_TELLING = (
    "by the way, ", "you should know that ", "just so you know, ", "for the record, ", "let me tell you something: ",
    "remember this: ", "something about me: ", "and ", "well, ", "i forgot to say, ", "oh, and ", "also, ",
    "before we begin, ", "fun fact: ", "please remember: ",
)  # fmt: skip
CORRECTED = (
    "no, sorry, {t}", "wait, that was wrong: {t}", "correction: {t}", "i made a mistake, {t}", "sorry, i meant {v}",
    "oops, it is {v}, not {w}", "not {w} but {v}", "actually {t}", "i mixed that up, {t}", "no no, {v}, not {w}",
    "forget {w}, it is {v}", "i said {w}, but {t}", "that has changed: {t}", "hm, {w} is wrong. {t}", "make that {v}",
    "by the way, it is no longer {w} but {v}", "i told you {w}, please change it to {v}", "scratch that, {t}",
)  # fmt: skip
CORRECTED_REPLIES = (
    "Thank you, I will remember {v}.",
    "All right, {v} it is.",
    "Noted: {v}.",
    "Good that you tell me: {v}.",
)
THE_OTHERS = (
    "my sister", "my brother", "my best friend", "my boss", "our neighbor", "my cousin", "my aunt", "my teacher",
    "my flatmate", "the new colleague", "my grandfather", "my daughter",
)  # fmt: skip
VAGUELY_ASKED = ("number", "appointment")  # such as "what number did i say", which could be anybody's
CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
# What may stand around a fact, {n} a name, {t} a town, {d} a day, {i} a number: it is never asked for.
CHATTER = (
    "{n} said that I could ask you anything.", "Today I had a long walk with {n}.", "It is {d}, and I am tired.",
    "I have been awake for {i} hours.", "The train from {t} was late.", "{n} and {n2} are sitting next to me.",
    "My phone rang {i} times this morning.", "A parcel from {t} has come.", "Sorry for the many questions.",
    "I like this app so far.", "You can call that a fact.", "What a day!", "I hope you can remember that.",
    "{n} does not know it yet.", "We will need this later.", "On {d} I am off work.",
    "There are {i} people in front of me.",
    "I just had a sandwich.", "It is loud in here.", "Let me tell you about myself.", "{n} from {t} told me about you.",
    "Keep it in mind, please.", "No need to answer that.", "I thought that you should know.",
)  # fmt: skip
TIED = (
    "{f}, in case you wonder", "{f}, if that is of interest", "{f}, just that you know", "{f}, by the way",
    "{f}, so now you know", "{f}, please keep it in mind", "{f}, as {n} knows well", "{f}, unlike {n}",
    "well, i think {f}", "as you may have guessed, {f}", "it is no secret that {f}", "{n} always laughs because {f}",
    "one thing about me: {f}", "first of all, {f}", "i should add that {f}", "what matters is that {f}",
)  # fmt: skip
UNTOLD = (
    "You have not told me that yet. What is it?",
    "I do not know that, because you have not told me in this chat.",
    "I do not know yet. Please tell me!",
)


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


def one_of(words: list[str] | tuple[str, ...], made: Callable[[Fillers], str]) -> Callable[[Fillers], str]:
    """A word of the list; in training half the time a made one, so that the value has to be copied."""

    def draw(fill: Fillers) -> str:
        if fill.held_out or fill.rng.random() > MADE_SHARE:
            return fill.rng.choice(fill.half(list(words)))
        value = made(fill)
        return draw(fill) if value in words else value

    return draw


def any_thing(fill: Fillers) -> str:
    return fill.rare(fill.rng.choice(fill.half(list(fill.things))))


def made_place(fill: Fillers) -> str:
    near = ("in the", "under the", "behind the", "on the", "next to the", "near the", "inside the", "below my", "on my")
    return f"{fill.rng.choice(near)} {any_thing(fill)}"


def made_plan(fill: Fillers) -> str:
    things = ("paint a", "repair the", "buy a", "build a", "look for a", "sell the", "draw a", "clean the")
    kind = fill.rng.random()
    if kind < 0.3:
        return fill.rng.choice(("visit ", "meet ", "have lunch with ", "help ")) + fill.first_name()
    if kind < 0.5:
        return fill.rng.choice(("go to ", "drive to ", "take a train to ")) + fill.place()
    return f"{fill.rng.choice(things)} {any_thing(fill)}"


def made_day(fill: Fillers) -> str:
    day = fill.rng.choice(fill.half(DAYS))
    return fill.rng.choice((f"next {day}", f"{day} at {fill.clock()}", fill.day_of_year(), f"{day} morning"))


def made_book(fill: Fillers) -> str:
    word, thing = fill.word(), capitalised(any_thing(fill))
    return fill.rng.choice((word, f"The {thing}", f"The {thing} of {word}", f"{word} and the {thing}"))


def code(fill: Fillers) -> str:
    """Digits; in training letters too."""
    number = str(fill.integer(*fill.rng.choice(((100, 999), (1000, 9999), (100000, 999999)))))
    if fill.held_out or fill.rng.random() < 0.6:
        return number
    letters = "".join(fill.rng.choice(CODE_LETTERS) for _ in range(fill.rng.choice((1, 2, 3))))
    return fill.rng.choice((letters + number, f"{number}-{letters}", f"{letters}-{number}", fill.word().lower()))


def hour(fill: Fillers) -> str:
    usual = f"{fill.rng.randint(1, 23)}:{fill.integer(10, 59)}"
    return usual if fill.held_out or fill.rng.random() < 0.6 else fill.clock()


def town(fill: Fillers) -> str:
    return fill.place() if fill.rng.random() < 0.6 else fill.rng.choice(fill.half(CITIES))


DRAWS: dict[str, Callable[[Fillers], str]] = {
    "name": any_name,
    "home": town,
    "color": one_of(COLORS, any_thing),
    "food": one_of(FOODS, any_thing),
    "pet": any_name,
    "relative": any_name,
    "job": one_of(JOBS, any_thing),
    "age": lambda fill: str(fill.integer(7, 95)),
    "birthday": lambda fill: f"{fill.integer(1, 30)} {fill.rng.choice(MONTHS[::2] if fill.held_out else MONTHS)}",
    "hobby": one_of([hobby for hobby in HOBBIES if hobby.endswith("ing")], any_thing),
    "language": one_of(LANGUAGES, Fillers.word),
    "car": one_of(CARS, Fillers.word),
    "plan": one_of(PLANS, made_plan),
    "allergy": one_of(ALLERGIES, any_thing),
    "number": Fillers.number,
    "book": one_of(BOOKS, made_book),
    "drink": one_of(DRINKS, any_thing),
    "sport": one_of(SPORTS, any_thing),
    "subject": one_of(SUBJECTS, any_thing),
    "appointment": one_of(DAYS, made_day),
    "secret": code,
    "called": any_name,
    "favorite": any_name,
    "kept": one_of(PLACES, made_place),
    "trip": lambda fill: fill.rng.choice(fill.half(CITIES)) if fill.rng.random() < 0.4 else fill.word(),
    "time": hour,
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

    "@" has what frames ask for; "+>" and "+?" have more ways to tell and to ask, for training only.
    """
    lines: dict[str, dict[str, str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        mark, _, text = line.partition(" ")
        if mark in (">", "<", "?", "!", "@", "+>", "+?"):
            lines[list(lines)[-1]][mark] = text
        else:
            lines[line] = {}
    return tuple(read_kind(name, marked) for name, marked in lines.items())


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


def different_kinds(rng: random.Random, count: int) -> list[Kind]:
    """So many kinds of fact, each with its own questions."""
    chosen: dict[str, Kind] = {}
    while len(chosen) < count:
        kind = rng.choices(KINDS, WEIGHTS)[0]
        chosen[kind.name] = kind
    return list(chosen.values())


def told(fill: Fillers, fact: Fact) -> str:
    """Sometimes with words before it or around it."""
    is_more = bool(fact.more_told) and fill.rng.random() < MORE_TOLD_SHARE
    text = fill.rng.choice(fact.more_told) if is_more else fill.phrasing(fact.told)
    is_led = fill.rng.random() < 0.15
    if fill.held_out:
        return text
    if fact.kind not in VAGUE and fill.rng.random() < CHATTER_SHARE:
        return with_chatter(fill, fact, text)
    return fill.rng.choice(BEFORE_TELLING) + text if is_led else text


def with_chatter(fill: Fillers, fact: Fact, text: str) -> str:
    """The fact in a longer sentence, or a sentence about other people, places and numbers before or after it."""
    rng, names = fill.rng, {"d": fill.rng.choice(fill.half(DAYS)), "i": fill.number()}
    names |= {key: other_than(fact, draw, fill) for key, draw in (("n", any_name), ("n2", any_name), ("t", town))}
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(TIED).format(f=text, **names)
    chatter = rng.choice(CHATTER).format(**names)
    return f"{chatter} {text}" if kind < 0.7 else f"{text}. {chatter}"


def other_than(fact: Fact, draw: Callable[[Fillers], str], fill: Fillers) -> str:
    while (value := draw(fill)) in fact.key or fact.key in value:
        pass
    return value


def telling(fill: Fillers, fact: Fact) -> tuple[Turn, ...]:
    return pairs(varied(fill.rng, told(fill, fact)), fill.rng.choice(fact.replies))


def telling_both(fill: Fillers, one: Fact, other: Fact) -> tuple[Turn, ...]:
    """Two facts in one message."""
    joint = fill.rng.choice((" and ", ", and ", ". ", ", also ", " and by the way "))
    return pairs(varied(fill.rng, told(fill, one) + joint + fill.phrasing(other.told)), fill.rng.choice(other.replies))


def asked(fill: Fillers, fact: Fact) -> str:
    """A phrasing, in the teacher's words, or in training in one of the ways that evaluation does not use."""
    usual = fill.phrasing(fact.asked)
    text = fill.reworded(usual)
    if text == usual and fact.more_asked and fill.rng.random() < MORE_ASKED_SHARE:
        text = respoken(fill.rng, fill.rng.choice(fact.more_asked))
    elif text == usual and fact.framed and not fill.held_out and fill.rng.random() < FRAMED_SHARE:
        text = respoken(fill.rng, fill.rng.choice(fact.framed))
    return varied(fill.rng, text)


def asking(fill: Fillers, fact: Fact) -> tuple[Turn, ...]:
    return pairs(asked(fill, fact), fill.rng.choice(fact.answers))


def recall_chat(fill: Fillers, fillers: list[tuple[Turn, ...]], between: int) -> tuple[Conversation, list[str]]:
    """Facts are told, `between` other exchanges follow, then each fact is asked -> chat and the keys of its answers."""
    rng = fill.rng
    if fillers and not fill.held_out and rng.random() < STAGED_SHARE:
        return staged_chat(fill, fillers, between)
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


def staged_chat(fill: Fillers, fillers: list[tuple[Turn, ...]], between: int) -> tuple[Conversation, list[str]]:
    """As recall_chat, with something that could be mistaken for what is asked."""
    rng = fill.rng
    stage = rng.choice((corrected, beside_others, beside_others, owned, in_passing))
    told_first, facts = stage(fill, fillers)
    turns = [*told_first, *(turn for exchange in rng.choices(fillers, k=between) for turn in exchange)]
    order = rng.sample(facts, len(facts))
    for fact in order:
        turns += asking(fill, fact)
    return Conversation("recall", tuple(turns), learns_questions=True), [fact.key for fact in order]


def corrected(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """A fact that the user takes back, at once or later, for another value."""
    kind = different_kinds(fill.rng, 1)[0]
    wrong, right = different_values(fill, [(kind, owner) for owner in [fill.rng.choice(kind.owners)] * 2])
    names = {"v": right.key, "w": wrong.key, "t": fill.rng.choice((*right.told, *right.more_told))}
    said = varied(fill.rng, fill.rng.choice(CORRECTED).format(**names))
    later = fill.rng.choice(fillers) if fill.rng.random() < 0.3 else ()
    reply = fill.rng.choice(CORRECTED_REPLIES).format(**names)
    return [*telling(fill, wrong), *later, *pairs(said, reply)], [right]


def beside_others(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """The same of two or three people, the user among them or not; some of it is asked for."""
    rng = fill.rng
    kind = rng.choice(OTHERS)
    people = rng.sample((*THE_OTHERS, *(fill.first_name() for _ in THE_OTHERS)), rng.choice((1, 2, 2)))
    mine = [(own, "") for own in KINDS if own.name == kind.name and own.name not in VAGUELY_ASKED]
    is_told = len(people) < 2 or rng.random() < 0.6
    return told_in_turn(fill, [(kind, person) for person in people] + (mine if is_told else []))


def owned(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """The same of two or three things or people of the user."""
    kind = fill.rng.choice(OWNED)
    turns, facts = told_in_turn(
        fill, [(kind, owner) for owner in fill.rng.sample(kind.owners, fill.rng.choice((2, 3)))]
    )
    return turns, [naming_its_owner(fact) for fact in facts]


def told_in_turn(fill: Fillers, kinds: list[tuple[Kind, str]]) -> tuple[list[Turn], list[Fact]]:
    facts = different_values(fill, kinds)
    facts = fill.rng.sample(facts, len(facts))
    if len(facts) == 2 and fill.rng.random() < 0.4:
        turns = list(telling_both(fill, *facts))
    else:
        turns = [turn for fact in facts for turn in telling(fill, fact)]
    return turns, facts[: fill.rng.choice((1, 2, 3))] if fill.rng.random() < 0.5 else [fill.rng.choice(facts)]


def naming_its_owner(fact: Fact) -> Fact:
    """The fact without questions that could mean another one."""
    kept = [tuple(t for t in texts if fact.owner in t) for texts in (fact.asked, fact.framed, fact.more_asked)]
    return replace(fact, asked=kept[0], framed=kept[1], more_asked=kept[2])


def in_passing(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """A fact told in one breath with a question on something else, which gets the reply."""
    fact = different_kinds(fill.rng, 1)[0].fact(fill)
    question, answer = fill.rng.choice(fillers)[:2]
    said = varied(fill.rng, told(fill, fact)).rstrip(".!")
    return [Turn("user", f"{said}{fill.rng.choice(('. ', ', ', '! ', ' and '))}{question.content}"), answer], [fact]


def different_values(fill: Fillers, kinds: list[tuple[Kind, str]]) -> list[Fact]:
    """A fact for each kind and owner, no two with the same value or one within the other."""
    facts: list[Fact] = []
    while len(facts) < len(kinds):
        kind, owner = kinds[len(facts)]
        fact = kind.fact(fill, owner)
        if not any(fact.key in other.key or other.key in fact.key for other in facts):
            facts.append(fact)
    return facts


def untold_chat(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> Conversation:
    """One fact is told; another one is asked for, or the same of another person."""
    told, other = (kind.fact(fill) for kind in different_kinds(fill.rng, 2))
    if not fill.held_out and fill.rng.random() < 0.5:
        told, other = of_two_people(fill)
    turns = (*telling(fill, told), *fill.rng.choice(fillers))
    question = pairs(asked(fill, other), fill.rng.choice(UNTOLD))
    return Conversation("recall", (*turns, *question), learns_questions=True)


def of_two_people(fill: Fillers) -> tuple[Fact, Fact]:
    """The same of two people, one of them the user or not."""
    kind = fill.rng.choice([kind for kind in OTHERS if kind.name not in VAGUELY_ASKED])
    one, other = (kind.fact(fill, owner) for owner in fill.rng.sample(THE_OTHERS, 2))
    (mine,) = (own.fact(fill) for own in KINDS if own.name == kind.name)
    return fill.rng.choice(((one, other), (one, mine), (mine, one)))


def around(fill: Fillers, chat: Conversation) -> Conversation:
    """The chat, such as one with tools or a document, with a fact or two told before it and asked after it."""
    facts = [kind.fact(fill) for kind in different_kinds(fill.rng, fill.rng.choice((1, 1, 2)))]
    before = [turn for fact in facts for turn in telling(fill, fact)]
    after = [turn for fact in fill.rng.sample(facts, len(facts)) for turn in asking(fill, fact)]
    return replace(chat, turns=(*before, *chat.turns, *after))
