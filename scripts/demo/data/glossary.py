"""Owns documents that explain words: WordNet's glosses as sentences, and questions on words and glosses."""

from dataclasses import dataclass

from demo.data.topics import DocumentFact
from demo.data.wordnet import Noun, short_gloss
from demo.data.words import Fillers, capitalised, with_article

SENTENCES = (
    "{A} is {g}.", "{W} means {g}.", "The word {w} stands for {g}.", "By {w} people mean {g}.", "{A} is {g}.",
    "{W} is the name for {g}.", "In this text {w} is {g}.",
)  # fmt: skip
OF_WORD = (
    "What is {a}?", "What does {w} mean?", "What is meant by {w}?", "Explain {w}.", "How does the text explain {w}?",
    "What is {w}?", "Tell me what {a} is.", "What does the text say about {w}?", "Define {w}.",
)  # fmt: skip
OF_GLOSS = (
    "What is the word for {g}?", "What do you call {g}?", "Which word means {g}?", "How do people call {g}?",
    "What is the name for {g}?", "Which of these is {g}?",
)  # fmt: skip
ARTICLES = ("a ", "an ", "the ", "any ", "one ", "some ", "someone ", "something ")


@dataclass(frozen=True)
class Gloss:
    word: str
    gloss: str


def read_glosses(nouns: list[Noun]) -> list[Gloss]:
    """Those that read well in a sentence."""
    pairs = [Gloss(noun.word, short_gloss(noun.gloss)) for noun in nouns]
    return [
        pair
        for pair in pairs
        if 20 < len(pair.gloss) < 130 and pair.gloss.startswith(ARTICLES) and pair.gloss.isascii()
    ]


def glossary(fill: Fillers, glosses: list[Gloss]) -> list[DocumentFact]:
    """Three to nine words."""
    rng = fill.rng
    facts = []
    for pair in rng.sample(glosses, rng.randint(3, 9)):
        names = {"w": pair.word, "W": capitalised(pair.word), "g": pair.gloss, "a": with_article(pair.word)}
        names["A"] = capitalised(names["a"])
        asked = tuple(text.format(**names) for text in (*OF_WORD, *OF_GLOSS))
        facts.append(DocumentFact(rng.choice(SENTENCES).format(**names), asked, "", is_sure=True))
    return facts
