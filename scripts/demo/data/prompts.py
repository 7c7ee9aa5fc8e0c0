"""Owns the questions put to the teacher: everyday lines and question forms over common nouns."""

import random
from pathlib import Path

from demo.data.words import read_common_words, with_article

SUFFIXES = (
    " Answer in one or two short sentences.",
    " Answer in one or two short sentences.",
    " Answer in a few short sentences.",
    " Keep your answer short.",
)
THING_FORMS = (
    "What is {a}?", "What is {a}?", "Tell me about {p}.", "Describe {a}.", "Why are {p} important?",
    "Where can I find {a}?", "Can you explain what {a} is?", "Tell me a short story about {a}.",
    "Tell me something interesting about {p}.", "Write a sentence about {a}.", "Write a short poem about {a}.",
    "What does {a} look like?", "What is the difference between {a} and {b}?", "Do you like {p}?",
    "I want to buy {a}. What should I look for?", "Explain {p} to a child.", "What are {p} made of?",
    "Give me one fact about {p}.", "I saw {a} today.", "How do you draw {a}?", "How do I take care of {a}?",
    "When do people need {a}?", "Who uses {a}?", "Give me a tip about {p}.", "What can I do with {a}?",
    "I lost my {w}.", "I have a new {w}.", "Why do people like {p}?", "What is special about {p}?",
)  # fmt: skip
IDEA_FORMS = (
    "What is {w}?", "What does {w} mean?", "Can you explain {w}?", "Why is {w} important?", "Tell me about {w}.",
    "Give me an example of {w}.", "Write a sentence with the word {w}.", "How can I deal with {w}?",
    "What do you think about {w}?", "How can I get better at {w}?", "Give me some advice about {w}.",
)  # fmt: skip
PERSON_FORMS = (
    "What does {a} do?", "How do I become {a}?", "Tell me about the work of {a}.", "Tell me a short story about {a}.",
    "I want to be {a}.", "My sister is {a}.", "What makes a good {w}?",
)  # fmt: skip
OPENINGS = ("Please help me. ", "Hi! ", "Hello, ", "Hey, ", "I have a question. ", "Quick question: ")


def plural(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


class PromptWriter:
    """Draws questions: 45 % everyday lines, the rest question forms over everyday nouns."""

    def __init__(self, text_folder: Path) -> None:
        self.everyday = (text_folder / "everyday.txt").read_text(encoding="utf-8").splitlines()
        words = read_common_words(text_folder)
        self.things = words["things"]
        self.ideas = [idea.replace("_", " ") for idea in words["ideas"]]
        self.people = words["people"]

    def question(self, rng: random.Random) -> str:
        kind = rng.random()
        if kind < 0.45:
            return self.everyday_question(rng)
        if kind < 0.80:
            return self.fill(rng, THING_FORMS, self.things)
        return self.fill(rng, IDEA_FORMS, self.ideas) if kind < 0.92 else self.fill(rng, PERSON_FORMS, self.people)

    def fill(self, rng: random.Random, forms: tuple[str, ...], words: list[str]) -> str:
        word, other = rng.choice(words), rng.choice(words)
        return rng.choice(forms).format(w=word, a=with_article(word), p=plural(word), b=with_article(other))

    def everyday_question(self, rng: random.Random) -> str:
        question, style = rng.choice(self.everyday), rng.random()
        if style < 0.15:
            return question.rstrip(".!?")
        if style < 0.3:
            return question[0].lower() + question[1:]
        return rng.choice(OPENINGS) + question if style < 0.4 else question


def without_suffix(question: str) -> str:
    for suffix in SUFFIXES:
        question = question.removesuffix(suffix)
    return question.strip()
