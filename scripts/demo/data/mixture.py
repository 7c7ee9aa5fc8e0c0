"""Owns the mix of all generators: how often each kind of conversation is drawn, and with thinking on or off."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.data.app_chats import AppChats
from demo.data.conversation import Conversation, Turn, pairs, render
from demo.data.documents import DocumentWriter
from demo.data.glossary import read_glosses
from demo.data.handwritten import SYSTEM_LINES, Handwritten, normalised, unknown_person
from demo.data.lookups import copying_chat
from demo.data.memory import around, recall_chat, untold_chat
from demo.data.oddities import odd_chat
from demo.data.passages import Passages, read_passages
from demo.data.readings import read_readings
from demo.data.reasoning import with_thoughts
from demo.data.requests import read_requests, request_chat
from demo.data.summaries import summary_chat
from demo.data.sums import sum_chat
from demo.data.teacher_text import Chat, read_chats
from demo.data.titles import is_held_out, title_chat
from demo.data.tools import ToolWriter
from demo.data.topics import TopicWriter
from demo.data.wordnet import Noun, read_nouns, short_gloss
from demo.data.words import Fillers, read_common_words, with_article

THINKING_SHARE, APP_THINKING_SHARE = 0.15, 0.5
MEDIUM_CHARACTERS, LONG_CHARACTERS = (0.2, 1.1), (1.1, 3.0)  # of a document for each token of a row
THINKING_SUMS_SHARE = 0.35
TITLED_USES_SHARE = 0.3


@dataclass(frozen=True)
class Mix:
    """Number of conversations of each kind; teacher chats are all used, `teacher_rounds` times."""

    teacher_rounds: float
    handwritten: int
    recall: int
    sums: int
    words: int
    unknown: int
    documents: int
    medium_documents: int
    long_documents: int
    tools: int
    requests: int
    titles: int
    summaries: int
    lookups: int = 0
    app_chats: int = 0
    oddities: int = 0


SHORT_MIX = Mix(
    teacher_rounds=2,
    handwritten=560_000,
    recall=85_000,
    sums=60_000,
    words=40_000,
    unknown=12_000,
    documents=160_000,
    medium_documents=12_000,
    long_documents=0,
    tools=100_000,
    requests=12_000,
    titles=20_000,
    summaries=20_000,
)

# For training that goes on from weights, on rows of 2,048 tokens and then of 8,192: finding and copying in other words.
FINDING_MIX = Mix(
    teacher_rounds=2.0,
    handwritten=560_000,
    recall=105_000,
    sums=40_000,
    words=8_000,
    unknown=5_000,
    documents=180_000,
    medium_documents=24_000,
    long_documents=6_000,
    tools=72_000,
    requests=26_000,
    titles=36_000,
    summaries=8_000,
    lookups=52_000,
    app_chats=44_000,
    oddities=26_000,
)
DEEP_MIX = Mix(
    teacher_rounds=1.0,
    handwritten=240_000,
    recall=44_000,
    sums=16_000,
    words=3_000,
    unknown=2_000,
    documents=56_000,
    medium_documents=9_000,
    long_documents=8_000,
    tools=23_000,
    requests=10_000,
    titles=14_000,
    summaries=2_500,
    lookups=12_000,
    app_chats=13_000,
    oddities=5_000,
)

LONG_MIX = Mix(
    teacher_rounds=0.4,
    handwritten=480_000,
    recall=50_000,
    sums=25_000,
    words=12_000,
    unknown=8_000,
    documents=150_000,
    medium_documents=30_000,
    long_documents=12_000,
    tools=58_000,
    requests=16_000,
    titles=12_000,
    summaries=20_000,
)
MIXES = {"short": SHORT_MIX, "long": LONG_MIX, "finding": FINDING_MIX, "deep": DEEP_MIX}
TOKENIZER_SAMPLE = {
    "teacher_rounds": 70_000,
    "handwritten": 30_000,
    "recall": 5_000,
    "sums": 1_000,
    "words": 6_000,
    "documents": 12_000,
    "tools": 1_500,
    "titles": 1_000,
    "summaries": 1_500,
}


class Generators:
    """All sources, read once per process."""

    def __init__(self, text_folder: Path, teacher_folder: Path, wordnet_folder: Path | None) -> None:
        self.handwritten = Handwritten(text_folder)
        self.things = read_common_words(text_folder)["things"]
        chats = [chat for chat in read_chats(teacher_folder) if is_usable(chat, self.handwritten.known)]
        self.teacher = chats
        texts = [answer for chat in chats[:150_000] for _, answer in chat]
        nouns = read_nouns(wordnet_folder, min_uses=0) if wordnet_folder else []
        passages = Passages(texts, self.things, read_passages(teacher_folder))
        topics, readings = TopicWriter(text_folder / "topics.txt"), read_readings(text_folder)
        self.documents = DocumentWriter(passages, topics, readings, read_glosses(nouns))
        self.tools = ToolWriter(self.documents, self.handwritten)
        self.app_chats = AppChats(self.documents, self.handwritten, self.tools)
        self.requests = read_requests(text_folder / "requests.txt")
        self.nouns = [noun for noun in nouns if noun.uses >= 3 and is_definable(noun)]
        left_out = self.tools.uses.vocabulary.left_out() | set(self.things[::4])
        self.lexicon = tuple(noun.word for noun in nouns if noun.word.isalpha() and noun.word not in left_out)

    def fill(self, rng: random.Random, held_out: bool = False) -> Fillers:
        return Fillers(rng, self.things, held_out, self.lexicon)

    def from_teacher(self, rng: random.Random, index: int) -> Conversation:
        turns = [turn for exchange in self.teacher[index] for turn in pairs(*exchange)]
        if rng.random() < 0.25:
            turns += pairs(*self.handwritten.exchange(rng))
        if rng.random() < 0.15:
            turns += pairs(*rng.choice(rng.choice(self.teacher)))
        system = rng.choice(SYSTEM_LINES) if rng.random() < 0.12 else ""
        return Conversation("chat", tuple(turns), system, learns_questions=True)

    def recall(self, rng: random.Random) -> Conversation:
        """Mostly among small talk, else around a document or tools."""
        fill, kind = self.fill(rng), rng.random()
        between = self.small_talk(fill)
        if kind < 0.08:
            return around(fill, self.documents.item(fill).conversation, between)
        if kind < 0.2:
            return around(fill, self.tools.chat(fill), between)
        if kind < 0.26:
            return untold_chat(fill, between)
        return recall_chat(fill, between, between=rng.choice((0, 0, 1, 1, 2, 3, 5, 6, 8)))[0]

    def small_talk(self, fill: Fillers) -> list[tuple[Turn, ...]]:
        """Exchanges that tell nothing about the user's name; sums among them."""
        exchanges = [self.handwritten.exchange(fill.rng) for _ in range(8)]
        return [pairs(*exchange) for exchange in exchanges if "your name" not in exchange[1]] + [
            sum_chat(fill).turns[:2]
        ]

    def word(self, rng: random.Random) -> Conversation:
        noun = rng.choice(self.nouns)
        named = (
            noun.word if noun.category in ("substance", "feeling", "state", "phenomenon") else with_article(noun.word)
        )
        asked = rng.choice(
            (f"What is {named}?", f"What does {noun.word} mean?", f"Define {noun.word}.", f"what is {named}")
        )
        gloss = short_gloss(noun.gloss)
        answer = f"{named[0].upper()}{named[1:]} is {gloss}."
        return Conversation("word", pairs(asked, answer), learns_questions=True)

    def long_document(self, rng: random.Random, characters: int) -> Conversation:
        return self.documents.item(self.fill(rng), characters).conversation

    def app_chat(self, rng: random.Random, length: int) -> Conversation:
        """Now and then about a document that takes up to half of a row."""
        is_short = rng.random() < 0.8
        return self.app_chats.chat(self.fill(rng), 0 if is_short else rng.randint(length // 8, int(length * 1.5)))

    def titled(self, fill: Fillers) -> tuple[str, str]:
        """Question and answer of a chat that gets a title; evaluation has chats of its own, none of them with tools."""
        while True:
            rng = fill.rng
            if not fill.held_out and rng.random() < TITLED_USES_SHARE:
                exchange = self.of_a_skill(fill)
            else:
                is_handwritten = rng.random() < 0.6
                exchange = self.handwritten.exchange(rng) if is_handwritten else rng.choice(rng.choice(self.teacher))
            if is_held_out(exchange[0]) == fill.held_out:
                return exchange

    def of_a_skill(self, fill: Fillers) -> tuple[str, str]:
        """What is said about a tool, a fact told or a sum."""
        kind = fill.rng.random()
        if kind < 0.6:
            chat = self.tools.chat(fill)
        elif kind < 0.9:
            chat = recall_chat(fill, self.small_talk(fill), between=0)[0]
        else:
            chat = sum_chat(fill)
        return chat.turns[0].content, next(
            turn.content for turn in chat.turns if turn.role == "assistant" and turn.content
        )

    def title(self, fill: Fillers) -> Conversation:
        later = self.titled(fill) if fill.rng.random() < 0.3 else ()
        return title_chat(fill, *self.titled(fill), "".join(map("\n{}: {}".format, ("User", "Assistant"), later)))

    def summary(self, fill: Fillers) -> Conversation:
        """Of a passage of the teacher, or of facts about one subject."""
        passages = self.documents.passages
        if fill.rng.random() < 0.75:
            sentences = list(fill.rng.choice(passages.passages).sentences if passages.passages else [])
            sentences = sentences or list(fill.rng.choice(passages.groups))
        else:
            sentences = [fact.sentence for fact in self.documents.facts(fill, quoting=0.0)]
        return summary_chat(fill, sentences[:8])

    def draw(self, kind: str, rng: random.Random, index: int, length: int) -> Conversation:
        """One conversation; the longest documents nearly fill a row of `length` tokens."""
        if kind == "teacher_rounds":
            conversation = self.from_teacher(rng, index % len(self.teacher))
        elif kind == "documents":
            conversation = self.documents.item(self.fill(rng)).conversation
        elif kind == "medium_documents":
            conversation = self.long_document(rng, rng.randint(*(int(length * f) for f in MEDIUM_CHARACTERS)))
        elif kind == "long_documents":
            low, high = (length * f for f in LONG_CHARACTERS)
            conversation = self.long_document(rng, int(rng.triangular(low, high, high)))
        elif kind == "requests":
            conversation = request_chat(self.fill(rng), self.requests, self.tools.uses)
        elif kind == "lookups":
            return copying_chat(self.fill(rng))
        elif kind == "app_chats":
            conversation = self.app_chat(rng, length)
            return with_thoughts(rng, conversation) if rng.random() < APP_THINKING_SHARE else conversation
        elif kind == "oddities":
            return odd_chat(self.fill(rng), self.handwritten, length)
        elif kind == "sums":
            return sum_chat(self.fill(rng), thinking=rng.random() < THINKING_SUMS_SHARE)
        elif kind == "unknown":
            conversation = unknown_person(rng, self.fill(rng).full_name())
        else:
            conversation = self.simple(kind, rng)
        return with_thoughts(rng, conversation) if rng.random() < THINKING_SHARE else conversation

    def simple(self, kind: str, rng: random.Random) -> Conversation:
        of_fill = {"tools": self.tools.chat, "titles": self.title, "summaries": self.summary}
        makers = {"handwritten": self.handwritten.chat, "recall": self.recall, "words": self.word}
        return of_fill[kind](self.fill(rng)) if kind in of_fill else makers[kind](rng)


def sample_texts(generators: Generators, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    for kind, count in TOKENIZER_SAMPLE.items():
        for _ in range(count):
            conversation = generators.draw(kind, rng, rng.randrange(1 << 40), 1024)
            yield from (segment.text for segment in render(conversation))


UNWANTED_HABITS = re.compile(
    r"sorry for (any|your|the)|inconvenience|\bai\b|recipe_url|http|\[|here to (help|assist|support)|confusion|equipped"
    r"|happy to (help|assist)|designed to (provide|assist|help)|glad to (help|assist)|user's",
    re.I,
)
STATEMENT = re.compile(
    r"^((hi|hey|hello|please help me|i have a question)\W+)?(i|i'm|my|it is my|do you|can you help|help)\b", re.I
)


def is_usable(chat: Chat, known: set[str]) -> bool:
    """Hand-written answers win over the teacher's; it answers statements badly and has unwanted habits of speech."""
    for question, answer in chat:
        if normalised(question) in known or STATEMENT.match(question) or UNWANTED_HABITS.search(answer):
            return False
    return True


def is_definable(noun: Noun) -> bool:
    kinds = ("artifact", "animal", "food", "plant", "object", "substance", "phenomenon", "feeling")
    gloss = short_gloss(noun.gloss)
    starts = ("a ", "an ", "the ", "any ", "one ", "some", "someone ")
    return noun.category in kinds and 15 < len(gloss) < 110 and gloss.startswith(starts) and noun.word not in gloss
