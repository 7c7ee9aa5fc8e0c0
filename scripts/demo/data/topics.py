"""Owns made-up facts: reading text/topics.txt, and drawing a topic's sentences with the questions they answer.

The file has lists (`~ name: a; b`), topics (`# kinds | full name | short name | pronoun`) and facts: sentence forms
after `-`, questions after `?`, the key of the answer after `>`. `= 1` pairs the first questions, with `//` between
them, with the first form and so on. For training alone, `@` has phrases that frames ask for and `+` more questions.
`{n}` is the topic's name, `{N}` and `{It}` begin a sentence, `{a job}` has an article, `{x:a;b}` is a choice.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demo.data.asking import asked_for
from demo.data.words import (
    COLORS,
    DAYS,
    FOODS,
    HOBBIES,
    JOBS,
    LANGUAGES,
    MONTHS,
    Fillers,
    capitalised,
    with_article,
)

SLOT = re.compile(r"\{([^{}]+)\}")
NAME_SLOTS = ("n", "N", "It", "n:cap", "k", "a k", "w", "id", "K")
FIRST_WORDS = ("The ", "It ", "On ", "In ", "From ", "For ", "After ", "About ", "Every ", "Because ", "Since ", "To ")
LEADS = (
    "As far as we know, ", "According to the last report, ", "By the way, ", "As everybody here knows, ",
    "If the old papers are right, ", "Unlike last year, ", "Strange as it sounds, ", "To be precise, ",
    "At the moment, ", "For the record, ",
)  # fmt: skip
TAILS = (
    ", as the sign at the door says", ", which surprised many people", ", and nobody has complained so far",
    ", if nothing changes", ", as agreed last week", ", although some would like to change that",
    ", and that is not negotiable", ", according to the neighbors", " (see the notes at the end)",
    ", and it has always been like that",
)  # fmt: skip

FRAMED = 8  # of the framed questions of a fact stand beside the dozen written for it


@dataclass(frozen=True)
class DocumentFact:
    """A sentence of a document, the questions it answers, and the key of the answer: "" where only all of it will do.

    `name` is what all of its questions speak of, empty for a sentence that stands alone. `is_sure` says that people
    have matched the questions to the sentence.
    """

    sentence: str
    questions: tuple[str, ...]
    short: str
    name: str = ""
    is_sure: bool = False


@dataclass(frozen=True)
class FactForm:
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    key: str
    is_paired: bool
    more: tuple[str, ...] = ()  # for training
    framed: tuple[str, ...] = ()  # for training


@dataclass(frozen=True)
class TopicForm:
    kinds: tuple[str, ...]
    name: str
    short_name: str
    pronoun: str
    facts: tuple[FactForm, ...]


@dataclass(frozen=True)
class Topic:
    """Facts of one thing in their order; `short_name` may stand for it where nothing else has it.

    `left_out` are facts of the same thing that the document does not state.
    """

    name: str
    short_name: str
    facts: list[DocumentFact]
    left_out: list[DocumentFact]
    form: TopicForm


class Slots:
    """The values of one fact's slots, each drawn at its first use."""

    def __init__(self, fill: Fillers, lists: dict[str, list[str]], names: dict[str, str]) -> None:
        self.fill, self.lists, self.values = fill, lists, dict(names)

    def render(self, text: str) -> str:
        return SLOT.sub(lambda match: self.value(match[1]), text)

    def value(self, slot: str) -> str:
        if slot.startswith("a "):
            return with_article(self.value(slot[2:]))
        if slot.endswith(":cap"):
            return capitalised(self.value(slot[:-4]))
        if ":" in slot:
            slot, options = slot.split(":", 1)
            self.values.setdefault(slot, self.fill.rng.choice(options.split(";")))
        if slot not in self.values:
            self.values[slot] = self.draw(re.sub(r"\d+$", "", slot))
        return self.values[slot]

    def draw(self, kind: str) -> str:
        fill = self.fill
        if kind in self.lists:
            return fill.rng.choice(self.lists[kind])
        makers: dict[str, Callable[[], str]] = {
            "year": fill.year,
            "full": fill.full_name,
            "first": fill.first_name,
            "place": fill.place,
            "word": fill.word,
            "number": fill.number,
            "small": lambda: str(fill.integer(2, 90)),
            "phone": lambda: "".join(fill.rng.choice("0123456789") for _ in range(6)),
            "clock": fill.clock,
            "date": fill.date if fill.rng.random() < 0.5 else fill.day_of_year,
            "thing": fill.thing,
        }
        return makers[kind]()


WORD_LISTS = {
    "day": DAYS,
    "month": MONTHS,
    "color": COLORS,
    "job": JOBS,
    "food": FOODS,
    "hobby": HOBBIES,
    "language": LANGUAGES,
}


def read_topics(path: Path) -> tuple[dict[str, list[str]], list[TopicForm]]:
    lists = {name: list(words) for name, words in WORD_LISTS.items()}
    topics: list[TopicForm] = []
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = block.splitlines()
        if lines[0].startswith("~ "):
            lists |= {name[2:]: words.split("; ") for name, words in (line.split(": ", 1) for line in lines)}
            continue
        kinds, name, short_name, pronoun = lines[0].removeprefix("# ").split(" | ")
        facts = tuple(read_fact(part.splitlines()) for part in "\n".join(lines[1:]).split("\n- "))
        topics.append(TopicForm(tuple(kinds.split("; ")), name, short_name, pronoun, facts))
    return lists, topics


def read_fact(lines: list[str]) -> FactForm:
    marked = {line[:2]: line[2:] for line in lines[1:]}
    sentences = tuple(lines[0].removeprefix("- ").split(" // "))
    more = tuple(marked["+ "].split(" | ")) if "+ " in marked else ()
    framed = asked_for(marked["@ "]) if "@ " in marked else ()
    return FactForm(sentences, tuple(marked["? "].split(" | ")), marked["> "], "= " in marked, more, framed)


class TopicWriter:
    def __init__(self, path: Path) -> None:
        self.lists, self.forms = read_topics(path)

    def topic(self, fill: Fillers, form: TopicForm | None = None) -> Topic:
        """Three to eight facts of one thing, and up to three that are left out."""
        form = form or fill.rng.choice(self.forms)
        kind = fill.rng.choice(form.kinds)
        names = {"k": kind, "K": capitalised(kind), "w": fill.word(), "id": str(fill.integer(1, 99)), "p": fill.place()}
        names |= {"the k": f"the {kind}", "full": f"{fill.first_name()} {fill.word()}"}
        names["first"] = names["full"].split()[0]
        name, short_name = (SLOT.sub(lambda m: names[m[1]], text) for text in (form.name, form.short_name))
        chosen = fill.rng.sample(form.facts, len(form.facts))
        count = fill.rng.randint(3, min(8, len(chosen) - 1))
        facts = []
        for number, fact_form in enumerate(chosen[: count + 3]):
            base = {key: names[key] for key in ("k", "w", "id", "K")}
            slots = Slots(fill, self.lists, base)
            facts.append(write_fact(slots, fact_form, name, short_name, form.pronoun, is_first=number in (0, count)))
        return Topic(name, short_name, facts[:count], facts[count:], form)


def write_fact(slots: Slots, form: FactForm, name: str, short_name: str, pronoun: str, is_first: bool) -> DocumentFact:
    """Questions keep `{n}` for the name, which the document decides; those on what the sentence lacks are left."""
    rng = slots.fill.rng
    number = rng.randrange(len(form.sentences))
    text = form.sentences[number]
    shown = name if is_first or rng.random() < 0.5 else short_name
    it = capitalised(name) if is_first else capitalised(rng.choice((pronoun, pronoun, shown)))
    slots.values |= {"n": shown, "N": capitalised(shown), "It": it}
    sentence = embellished(rng, capitalised(slots.render(text)))
    known = {part for slot in SLOT.findall(text) for part in (slot.split(":")[0], slot.removeprefix("a "))}
    questions = slots.fill.own_phrasings(form.questions)
    if not slots.fill.held_out:
        questions += [*form.more, *rng.sample(form.framed, min(FRAMED, len(form.framed)))]
    if form.is_paired:  # each sentence has its own questions: none of them is left for evaluation
        questions = [] if slots.fill.held_out else form.questions[number].split(" // ")
    answered = [q for q in questions if all(is_known(slot, known) for slot in SLOT.findall(q))]
    slots.values |= {"n": "{n}"}
    kept = tuple(slots.render(question) for question in answered)
    key = slots.render(form.key) if all(is_known(slot, known) for slot in SLOT.findall(form.key)) else ""
    return DocumentFact(sentence, kept, key if key and key in sentence else "", name)


def is_known(slot: str, known: set[str]) -> bool:
    bare = slot.removeprefix("a ").removesuffix(":cap")
    return bare in known or bare in NAME_SLOTS


def embellished(rng, sentence: str) -> str:
    kind = rng.random()
    if kind < 0.08 and sentence.startswith(FIRST_WORDS):
        return rng.choice(LEADS) + sentence[0].lower() + sentence[1:]
    return sentence.removesuffix(".") + rng.choice(TAILS) + "." if kind > 0.92 and sentence.endswith(".") else sentence
