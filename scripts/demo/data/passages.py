"""Owns passages of the teacher: their sentences, its own questions about them, questions by rules, and what is swapped.

Names and numbers are exchanged in a passage and its questions alike, so that only the text in front has the answer.
"""

import json
import lzma
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demo.data.topics import DocumentFact
from demo.data.words import FIRST_NAMES, Fillers, with_article
from demo.listing import listed

HELD_OUT_PASSAGES = 400
COMMON = set(
    listed(
        "the a an of to in and is are was were be been it its this that these those with for on as by at "
        "from or can will has have had not also they their them you your i we our he she his her which "
        "who when where what how than then there into such one two may most more many some other used use "
        "using people like just about it's that's"
    )
)
ASKING = set(listed("does did do long much many often name kind say text mention document tell know why whom whose"))
STEM = 5
REWORDED_PASSAGES = 0.3


@dataclass(frozen=True)
class Passage:
    """Sentences in order, and for each the teacher's questions."""

    sentences: tuple[str, ...]
    questions: tuple[tuple[str, ...], ...]


def split_sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.!?])\s+", text.replace("\n", " "))
    return [
        p.strip() for p in parts if 4 <= len(p.split()) <= 34 and p[:1].isupper() and p[-1:] == "." and '"' not in p
    ]


def content_words(sentence: str) -> list[str]:
    words = re.findall(r"[A-Za-z][a-z]+|\d[\d,.]*\d|\d", sentence)
    return [word for word in words if word.lower() not in COMMON and len(word) > 2]


def stems(text: str) -> frozenset[str]:
    """What a question and its sentence share: the beginnings of content words, and numbers."""
    words = re.findall(r"[a-z]+|\d+", text.lower())
    return frozenset(w[:STEM] for w in words if (len(w) > 2 or w.isdigit()) and w not in COMMON and w not in ASKING)


def is_answered_alone(question: str, target: int, sentences: list[frozenset[str]]) -> bool:
    """The sentence shares more with the question than every other one does, and at least two words or half of it."""
    asked = stems(question)
    shared = [len(asked & sentence) for sentence in sentences]
    best = shared[target]
    enough = best >= 2 or (best == 1 and len(asked) <= 2)
    return enough and all(other < best for index, other in enumerate(shared) if index != target)


def write_passages(passages: list[Passage], path: Path) -> None:
    lines = "\n".join(json.dumps([p.sentences, p.questions], ensure_ascii=False) for p in passages)
    path.write_bytes(lzma.compress(lines.encode(), preset=3))


def read_passages(folder: Path) -> list[Passage]:
    passages = []
    for path in sorted(folder.glob("passages-*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            sentences, questions = json.loads(line)
            passages.append(Passage(tuple(sentences), tuple(map(tuple, questions))))
    return passages


class Passages:
    """The teacher's short answers, with questions by rules, and its passages, with its own questions."""

    def __init__(self, texts: list[str], things: tuple[str, ...], passages: list[Passage]) -> None:
        split = [split_sentences(text) for text in texts]
        self.groups = [sentences for sentences in split if len(sentences) >= 3]
        self.singles = [sentences[0] for sentences in split if 0 < len(sentences) < 3]
        self.things = things
        self.nouns = set(things)
        self.held_out, self.passages = passages[:HELD_OUT_PASSAGES], passages[HELD_OUT_PASSAGES:]

    def draw(self, rng: random.Random) -> list[str]:
        kind = rng.random()
        if kind < 0.45:
            return list(rng.choice(self.groups))[:8]
        if kind < 0.8:
            return rng.sample(self.singles, rng.randint(3, 6))
        return list(rng.choice(self.groups))[:4] + rng.sample(self.singles, 2)

    def altered(self, rng: random.Random, sentence: str) -> str:
        if rng.random() < 0.5:
            return sentence
        nouns = [word for word in content_words(sentence) if word in self.nouns]
        for noun in rng.sample(nouns, min(len(nouns), rng.choice((1, 1, 2)))):
            other = rng.choice(self.things)
            sentence = re.sub(rf"\b([Aa])n? {noun}\b", rf"\1{with_article(other)[1:]}", sentence)
            sentence = re.sub(rf"\b{noun}\b", other, sentence)
        return sentence

    def facts(self, fill: Fillers) -> list[DocumentFact]:
        """Sentences of the teacher's answers, with questions by rules."""
        sentences = [self.altered(fill.rng, sentence) for sentence in self.draw(fill.rng)]
        facts = []
        for index, sentence in enumerate(sentences):
            others = " ".join(sentences[:index] + sentences[index + 1 :]).lower()
            facts.append(DocumentFact(sentence, tuple(sentence_questions(sentence, others)), ""))
        return facts

    def asked_facts(self, fill: Fillers) -> list[DocumentFact]:
        """A passage of the teacher with its questions."""
        passage = fill.rng.choice(self.held_out if fill.held_out else self.passages)
        swap = swapper(fill, " ".join(passage.sentences))
        pairs = zip(passage.sentences, passage.questions, strict=True)
        return [DocumentFact(swap(s), tuple(swap(question) for question in asked), "") for s, asked in pairs]


def swapper(fill: Fillers, text: str) -> Callable[[str], str]:
    """-> function that exchanges first names and numbers of the text, the same everywhere."""
    names = [name for name in sorted(set(re.findall(r"\b[A-Z][a-z]+\b", text))) if name in FIRST_NAMES]
    numbers = set(re.findall(r"\b\d{2,4}\b", text))
    table = {name: fill.first_name() for name in names}
    for number in sorted(numbers):
        low, high = (
            (1850, 2030)
            if number[:2] in ("18", "19", "20") and len(number) == 4
            else (10 ** (len(number) - 1), 10 ** len(number) - 1)
        )
        table[number] = str(fill.integer(low, high))
    table |= rare_words(fill, text)
    if not table:
        return lambda sentence: sentence
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, table)) + r")\b")
    return lambda sentence: pattern.sub(lambda match: table[match[1]], sentence)


def rare_words(fill: Fillers, text: str) -> dict[str, str]:
    """In training, now and then: some words of the text, and words of the lexicon to stand for them."""
    if fill.held_out or not fill.lexicon or fill.rng.random() > REWORDED_PASSAGES:
        return {}
    words = sorted({word for word in re.findall(r"\b[a-z]{4,}\b", text) if word not in COMMON and word not in ASKING})
    chosen = fill.rng.sample(words, min(len(words), fill.rng.choice((1, 2, 3, 5))))
    return {word: fill.rng.choice(fill.lexicon) for word in chosen}


def sentence_questions(sentence: str, others: str) -> list[str]:
    """Questions made from a sentence by rules; each contains a word that only this sentence has."""
    own = [word for word in content_words(sentence) if word.lower() not in others]
    if not own:
        return []
    key = " ".join(own[:2]) if " ".join(own[:2]) in sentence else own[0]
    questions = [f"What does the text say about {own[-1]}?", f"What does it say about {key}?"]
    questions += [f"Find the sentence about {key}.", f"Where does the text mention {own[0]}?"]
    statement = re.match(r"(.{3,60}?) (is|are|was|were) (.+)\.$", sentence)
    vague = listed("it this they these that he she there you we i here but and")
    if statement and statement[1].lower().split()[0] not in vague and "," not in statement[1]:
        subject = (
            statement[1][0].lower() + statement[1][1:]
            if statement[1].split()[0] in ("The", "A", "An")
            else statement[1]
        )
        questions += [f"What {statement[2]} {subject}?"] * 3
        made_by = re.match(r"(\w+ed|made|built|found|known|given|written|grown) by ", statement[3])
        questions += [f"Who {statement[2]} {subject} {made_by[1]} by?"] * 3 if made_by else []
        located = re.match(r"(\w+ed|found|located|made|held|kept|grown|built) (in|at|on|near)\b", statement[3])
        questions += [f"Where {statement[2]} {subject} {located[1]}?"] * 3 if located else []
    modal = re.match(r"((?:The |A |An )?(?:\w+ ){1,3}?)(can|will|must|should|may) (\w+) (.+)\.$", sentence)
    if modal:
        subject = modal[1].strip()
        subject = subject[0].lower() + subject[1:] if subject.split()[0] in ("The", "A", "An") else subject
        questions += [f"What {modal[2]} {subject} {modal[3]}?", f"What {modal[2]} {subject} do?"] * 2
    because = re.match(r"(.{8,80}?),? (because|since|so that|due to) (.+)\.$", sentence)
    questions += [f"Why is it that {because[1][0].lower() + because[1][1:]}?"] * 2 if because else []
    count = re.search(
        r"\b(\d[\d,.]*|two|three|four|five|six|seven|eight|nine|ten|twelve|hundred) ([a-z]+s)\b", sentence
    )
    questions += [f"How many {count[2]} are mentioned?", f"How many {count[2]} are there?"] * 2 if count else []
    return questions
