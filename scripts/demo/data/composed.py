"""Owns questions and answers with slots ("how do I learn {skill}"), so that answers take up what was asked about."""

import itertools
import random
import re
from dataclasses import dataclass
from pathlib import Path

from demo.data.words import capitalised, with_article

TURNED = {"my": "your", "me": "you", "i": "you", "myself": "yourself", "our": "your", "us": "you", "we": "you"}


@dataclass(frozen=True)
class Form:
    """Questions and answers over one list of words, or two.

    {s} and {t} are the words, {S} is {s} capitalised, {p} its plural.
    """

    words: tuple[str, ...]
    second: tuple[str, ...]
    questions: tuple[str, ...]
    answers: tuple[str, ...]


def plural(word: str) -> str:
    irregular = {"mouse": "mice", "wolf": "wolves", "goose": "geese", "fish": "fish", "sheep": "sheep", "deer": "deer"}
    if word in irregular:
        return irregular[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    return word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeiou" else word + "s"


def fill_in(text: str, word: str, other: str) -> str:
    for slot, value in (("{s}", word), ("{t}", other)):
        if value:
            text = text.replace(f" a {slot}", f" {with_article(value)}")
            text = text.replace(f"A {slot}", capitalised(with_article(value)))
    return (
        text.replace("{p}", plural(word) if word else "")
        .replace("{s}", word)
        .replace("{t}", other)
        .replace("{S}", capitalised(word))
    )


def turned(text: str) -> str:
    """The user's words from the assistant's side: "my head" as "your head"."""
    return re.sub(r"\b(my|me|i|myself|our|us|we)\b", lambda match: TURNED[match[1]], text)


def alternatives(text: str) -> list[str]:
    """Every way to read "how [do/can] i": one choice of each bracket."""
    pieces = [piece.split("/") if i % 2 else [piece] for i, piece in enumerate(re.split(r"\[([^]]*)\]", text))]
    return [" ".join("".join(choice).split()) for choice in itertools.product(*pieces)]


class Composer:
    def __init__(self, folder: Path) -> None:
        words = {}
        for line in (folder / "slots.txt").read_text(encoding="utf-8").splitlines():
            name, listed = line.split(" | ", 1)
            words[name] = tuple(word.strip() for word in listed.split(";"))
        self.forms: list[Form] = []
        lists: list[str] = []
        for line in (folder / "compose.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("? "):
                expanded = [phrase for part in line[2:].split(" | ") for phrase in alternatives(part)]
                second = words[lists[1].rstrip("2")] if len(lists) > 1 else ("",)
                self.forms.append(Form(words[lists[0]], second, tuple(expanded), ()))
            elif line.startswith("! "):
                form = self.forms[-1]
                self.forms[-1] = Form(form.words, form.second, form.questions, (*form.answers, line[2:]))
            else:
                lists = line.split("+")
        self.weights = list(itertools.accumulate(len(form.questions) ** 0.5 for form in self.forms))

    def exchange(self, rng: random.Random) -> tuple[str, str]:
        """A plain question, not yet varied, and its answer."""
        form = rng.choices(self.forms, cum_weights=self.weights)[0]
        word, other = rng.choice(form.words), rng.choice(form.second)
        question = fill_in(rng.choice(form.questions), word, other)
        return question, fill_in(rng.choice(form.answers), turned(word), turned(other))

    def questions(self) -> list[str]:
        """Every question over one list."""
        single = [form for form in self.forms if form.second == ("",)]
        return [fill_in(question, word, "") for form in single for question in form.questions for word in form.words]
