"""Owns document questions: documents of made-up facts and passages, what is asked of them, answers that quote them."""

import random
import re
from collections import Counter
from dataclasses import dataclass, replace

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.files import filed
from demo.data.glossary import Gloss, glossary
from demo.data.handwritten import misspelled
from demo.data.passages import Passages, is_answered_alone, stems, swapper
from demo.data.readings import Reading
from demo.data.synonyms import with_synonyms
from demo.data.topics import DocumentFact, TopicForm, TopicWriter
from demo.data.words import FIRST_NAMES, Fillers, capitalised
from demo.listing import listed

FRAMES = (
    "{d}\n\n{q}", "{q}\n\n{d}", "File notes.txt:\n```\n{d}\n```\n\n{q}", "Here is a document:\n\n{d}\n\n{q}",
    "Text: {d}\n\n{q}", "Read this text:\n\n{d}\n\n{q}", "Document:\n{d}\n\nQuestion: {q}",
    "Use the document to answer the question.\n\n{d}\n\n{q}", "<document>\n{d}\n</document>\n\n{q}",
    "{q}\n\nHere is the text:\n\n{d}", "File report.md:\n```\n{d}\n```\n\n{q}", "{q}\n\n{d}", "{d}\n\n{q}",
    "I have a question about this text. {q}\n\n{d}", "Question: {q}\n\nDocument:\n{d}",
    "Please look at this and tell me: {q}\n\n{d}", "I got this today:\n\n{d}\n\n{q}", "{q}\n\n---\n{d}", "{d}\n\n{q}",
    "{d}\n\n---\n{q}",
)  # fmt: skip
SYSTEM_FRAMES = (
    "Answer the questions about this document.\n\n{d}",
    "You are a helpful assistant. The user has opened this document:\n\n{d}",
    "Use this document to answer:\n\n<document>\n{d}\n</document>",
)
QUESTION_LEADS = (
    "Can you tell me: ", "Please tell me: ", "Quick question: ", "One more thing: ", "According to the text, ",
    "I would like to know: ", "Do you see this? ", "Hi! ", "Hello, ", "ok, ", "And ", "So, ", "Thanks. ", "Next: ",
    "Look it up, please: ", "My question is: ", "In this text, ", "From the document: ", "Help me find this: ", "Hm, ",
)  # fmt: skip
QUESTION_LEADS += (
    "I can't find it: ", "I wonder: ", "Maybe it says so somewhere: ", "Not sure it is in there: ", "Please check: ",
    "Does the text say this? ", "Is this in there? ", "I need to know: ", "I read it too fast. ", "Tell me, ",
    "It must be in there: ", "My question about this: ", "What I want to know: ", "Sorry if it is not in there: ",
)  # fmt: skip
QUESTION_TAILS = (
    " Is that in the text?", " I could not find it.", " I need it for a form.", " What does it say?", " If it says so.",
    " Please quote it.", " Thanks!", " Just the sentence, please.", " I forgot.", " Does the document say?",
    " It should be in there.", " I am not sure it is in there.",
)  # fmt: skip
TWIN_SHARE = 0.2  # of the documents in training: what is said of the one thing may be missing of the other
STRANGER_SHARE = 0.3  # of the questions without an answer in training
WITHHELD_SHARE = 0.5  # of the readings lose a sentence, so that what is asked of it has no answer
SYNONYM_SHARE = 0.25  # of the questions in training
FILED_SHARE = 0.3  # of the documents in training are shown as the application does
NOT_THERE = ("The document does not say that.", "The document does not mention that.")
QUOTES = ('The document says: "{s}"',) * 3 + ('According to the document: "{s}"',)
OPENINGS = (
    "Dear {a},", "Hello {a},", "Hi everyone,", "Dear neighbors,", "# Notes", "# {w}", "Subject: {w} and {v}",
    "Minutes, {w}", "To whom it may concern", "NOTICE", "From: {a}\nTo: {b}", "{w} Weekly", "Chapter {n}", "{w}, {n}",
    "Dear parents,", "Some facts", "Report {n}", "Diary of {a}",
)  # fmt: skip
CLOSINGS = ("Kind regards,\n{a}", "Best wishes,\n{a} {w}", "Thank you!", "{a}", "See you soon,\n{a}", "-- {a} {w}")


NAME, KNOWN_NAMES = re.compile(r"\b[A-Z][a-z]+\b"), frozenset(FIRST_NAMES)
SMALL_WORDS = frozenset(
    listed("what is the a an of does do did are was were to in on at for i can me it that this has have be by from and")
)


@dataclass(frozen=True)
class Part:
    """Sentences that stand together; `name` and `short_name` belong to a topic, `left_out` are not in the text."""

    facts: list[DocumentFact]
    left_out: list[DocumentFact]
    name: str = ""
    short_name: str = ""
    form: TopicForm | None = None


def withholding(fill: Fillers, facts: list[DocumentFact]) -> Part | None:
    """Now and then: a reading without one of its sentences, never the first, which names the subject.

    So the text decides whether a wording has an answer. Nobody has matched the questions to the text that remains.
    """
    asked = [index for index, fact in enumerate(facts) if index and fact.questions]
    if len(asked) < 4 or fill.rng.random() >= WITHHELD_SHARE:
        return None
    gone = fill.rng.choice(asked)
    return Part(facts[:gone] + facts[gone + 1 :], [replace(facts[gone], is_sure=False)])


@dataclass(frozen=True)
class Asked:
    question: str
    fact: DocumentFact | None  # None where the document has no answer


@dataclass(frozen=True)
class DocumentItem:
    """A document chat and, for each question, the text its answer must contain ("" when it is not in the document)."""

    conversation: Conversation
    keys: tuple[str, ...]
    facts: tuple[DocumentFact | None, ...]  # what each answer should quote


class DocumentWriter:
    """The shares are of the parts that are no topic; what they leave has questions by rules."""

    reading_share, passage_share, glossary_share = 0.54, 0.27, 0.07

    def __init__(self, passages: Passages, topics: TopicWriter, readings: list[Reading], glosses: list[Gloss]) -> None:
        self.passages, self.topics, self.readings, self.glosses = passages, topics, readings, glosses

    def topic_part(self, fill: Fillers, form: TopicForm | None = None) -> Part:
        topic = self.topics.topic(fill, form)
        return Part(topic.facts, topic.left_out, topic.name, topic.short_name, topic.form)

    def part(self, fill: Fillers, quoting: float) -> Part:
        if fill.rng.random() >= quoting:
            return self.topic_part(fill)
        kind = fill.rng.random()
        if kind < self.reading_share and not fill.held_out and self.readings:
            return self.reading(fill)
        if kind > 1 - self.glossary_share and not fill.held_out and self.glosses:
            return Part(glossary(fill, self.glosses), [])
        is_asked = fill.held_out or kind < self.reading_share + self.passage_share
        facts = self.passages.asked_facts(fill) if is_asked else self.passages.facts(fill)
        asked = [index for index, fact in enumerate(facts) if fact.questions]
        # That such a question has no answer is told by shared words; training on many would teach that few of them mean
        # none. Readings have questions by hand.
        withheld_share = 0.4 if fill.held_out else 0.15
        if len(facts) < 4 or len(asked) < 2 or fill.rng.random() < 1 - withheld_share:
            return Part(facts, [])
        gone = fill.rng.choice(asked)
        return Part(facts[:gone] + facts[gone + 1 :], [facts[gone]])

    def reading(self, fill: Fillers) -> Part:
        """Written by hand, names and numbers exchanged; sometimes a part of it, sometimes without a sentence."""
        reading = fill.rng.choice(self.readings)
        swap = swapper(fill, " ".join(reading.sentences)) if fill.rng.random() < 0.7 else str
        pairs = zip(reading.sentences, reading.questions, strict=True)
        facts = [DocumentFact(swap(s), tuple(map(swap, asked)), "", is_sure=True) for s, asked in pairs]
        unanswered = DocumentFact("", tuple(map(swap, reading.unanswered)), "", is_sure=True)
        first = fill.rng.randrange(len(facts) - 4) if len(facts) > 6 and fill.rng.random() < 0.3 else 0
        return withholding(fill, facts[first:]) or Part(facts[first:], [unanswered])

    def parts(self, fill: Fillers, characters: int, quoting: float) -> list[Part]:
        parts = [self.part(fill, quoting)]
        if parts[0].form and not fill.held_out and fill.rng.random() < TWIN_SHARE:
            parts.append(self.topic_part(fill, parts[0].form))
        elif not characters:
            parts += [self.part(fill, quoting)] if fill.rng.random() < 0.35 else []
        while sum(len(fact.sentence) + 1 for part in parts for fact in part.facts) < characters:
            parts.append(self.part(fill, quoting))
        return fill.rng.sample(parts, len(parts)) if characters else parts

    def facts(self, fill: Fillers, quoting: float) -> list[DocumentFact]:
        """A short document's facts, their questions ready to be put."""
        part = self.part(fill, quoting)
        return [
            replace(fact, questions=tuple(question.replace("{n}", part.name) for question in fact.questions))
            for fact in part.facts
        ]

    def item(
        self,
        fill: Fillers,
        characters: int = 0,
        quoting: float = 0.6,
        missing: float = 0.2,
        filed_share: float = FILED_SHARE,
    ) -> DocumentItem:
        """A document of about so many characters (0: one or two parts) with up to 20 questions."""
        rng = fill.rng
        short = (2, 6 if fill.held_out else 8)
        wanted = rng.randint(*(short if characters < 1200 else (5, 11) if characters < 9000 else (10, 20)))
        while True:
            parts = self.parts(fill, characters, quoting)
            questions = Questions(fill, parts)
            asked = [questions.missing() if rng.random() < missing else questions.answered() for _ in range(wanted)]
            asked = list({one.question: one for one in asked if one}.values())
            if asked and (missing < 1 or asked[0].fact is None):
                break
        return self.written(fill, parts, asked, filed_share)

    def written(self, fill: Fillers, parts: list[Part], asked: list[Asked], filed_share: float) -> DocumentItem:
        rng = fill.rng
        sentences = [[fact.sentence for fact in part.facts] for part in parts if part.facts]
        is_filed = not fill.held_out and rng.random() < filed_share
        page = Page.as_file(fill, sentences) if is_filed else Page.laid_out(fill, sentences)
        turns: list[Turn] = []
        in_system = not is_filed and rng.random() < 0.2
        for number, one in enumerate(asked):
            answer = (
                rng.choice(NOT_THERE) if one.fact is None else quote(rng, one.fact) + page.mark_of(one.fact.sentence)
            )
            is_framed = number == 0 and not in_system
            frame = "{q}" if not is_framed else "{d}\n\n{q}" if is_filed else fill.phrasing(FRAMES)
            turns += pairs(frame.format(d=page.text, q=as_typed(fill, one.question)), answer)
        system = rng.choice(SYSTEM_FRAMES).format(d=page.text) if in_system else ""
        keys = tuple("" if one.fact is None else one.fact.short or one.fact.sentence for one in asked)
        return DocumentItem(
            Conversation("document", tuple(turns), system, learns_choices=True), keys, tuple(one.fact for one in asked)
        )


class Questions:
    """Draws questions about a document that one sentence answers, or none."""

    def __init__(self, fill: Fillers, parts: list[Part]) -> None:
        self.fill, self.parts = fill, parts
        self.sentences = [stems(fact.sentence) for part in parts for fact in part.facts]
        self.short_names = Counter(part.short_name for part in parts)

    def put(self, part: Part, question: str) -> str:
        is_clear = self.short_names[part.short_name] == 1 and self.fill.rng.random() < 0.4
        return question.replace("{n}", part.short_name if is_clear else part.name)

    def answered(self) -> Asked | None:
        """One of a few tries; a question on a passage must fit its own sentence best."""
        for _ in range(8):
            number = self.fill.rng.randrange(len(self.parts))
            part = self.parts[number]
            index = self.fill.rng.randrange(len(part.facts)) if part.facts else 0
            if not part.facts or not part.facts[index].questions:
                continue
            fact = part.facts[index]
            question = self.fill.rng.choice(fact.questions)
            if part.name:
                return Asked(self.put(part, question), fact)
            if fact.is_sure and len(self.parts) == 1:
                return Asked(question, fact)
            before = sum(len(other.facts) for other in self.parts[:number])
            if is_answered_alone(question, before + index, self.sentences):
                return Asked(question, fact)
        return None

    def missing(self) -> Asked | None:
        """A question on a thing of the document that no sentence answers."""
        if not self.fill.held_out and self.fill.rng.random() < STRANGER_SHARE and (asked := self.of_a_stranger()):
            return asked
        parts = [part for part in self.parts if any(fact.questions for fact in part.left_out)]
        if not parts:
            return None
        part = self.fill.rng.choice(parts)
        fact = self.fill.rng.choice([fact for fact in part.left_out if fact.questions])
        question = self.fill.rng.choice(fact.questions)
        if part.name:
            return Asked(self.put(part, question), None)
        if fact.is_sure:
            return Asked(question, None) if len(self.parts) == 1 else None
        asked = stems(question)
        close = max(len(asked & sentence) for sentence in self.sentences)
        return Asked(question, None) if len(asked) >= 2 and close < max(2, len(asked) / 2) else None

    def of_a_stranger(self) -> Asked | None:
        """A question that a sentence answers, but put about another thing or person of the same kind."""
        part = self.fill.rng.choice(self.parts)
        questions = [question for fact in part.facts for question in fact.questions]
        if part.name:
            name = stranger(self.fill, part)
            questions = [question.replace("{n}", name) for question in questions if "{n}" in question]
            is_there = any(name == other.name for other in self.parts)
            return Asked(self.fill.rng.choice(questions), None) if questions and not is_there else None
        name, said = self.fill.first_name(), " ".join(fact.sentence for other in self.parts for fact in other.facts)
        found = [
            (question, named) for question in questions for named in NAME.findall(question) if named in KNOWN_NAMES
        ]
        if not found or re.search(rf"\b{name}\b", said):
            return None
        question, named = self.fill.rng.choice(found)
        return Asked(re.sub(rf"\b{named}\b", name, question), None)


def stranger(fill: Fillers, part: Part) -> str:
    """The name of another one of the part's kind."""
    if not part.name.startswith("the ") and part.name.startswith(part.short_name):
        first = part.short_name if fill.rng.random() < 0.3 else fill.first_name()
        return f"{first} {fill.word()}"
    is_named_once = part.short_name == part.name  # such as "the train to Paris"
    of_kind = set() if is_named_once else {"Street", *map(capitalised, part.short_name.split())}
    return NAME.sub(lambda match: match[0] if match[0] in of_kind else fill.word(), part.name)


@dataclass(frozen=True)
class Page:
    """A document's text and, where it has marks, the mark of each sentence."""

    text: str
    marks: dict[str, str]

    def mark_of(self, sentence: str) -> str:
        return f" {self.marks[sentence]}" if sentence in self.marks else ""

    @classmethod
    def laid_out(cls, fill: Fillers, parts: list[list[str]]) -> "Page":
        rng = fill.rng
        sentences = [sentence for part in parts for sentence in part]
        style = rng.random()
        if style < 0.08:
            first = rng.choice((1, 1, fill.rng.randint(2, 900)))
            lines = {sentence: f"[line {number}]" for number, sentence in enumerate(sentences, first)}
            return cls("\n".join(f"{mark} {sentence}" for sentence, mark in lines.items()), lines)
        groups = paragraphs(rng, parts)
        if style < 0.24:
            return cls.with_pages(rng, groups)
        if style < 0.3:
            return cls("\n".join("- " + sentence for sentence in sentences), {})
        blocks = [" ".join(group) for group in groups]
        if rng.random() < 0.35:
            blocks.insert(0, dressed(fill, OPENINGS))
        if rng.random() < 0.2:
            blocks.append(dressed(fill, CLOSINGS))
        return cls(rng.choice(("\n\n", "\n\n", "\n\n", "\n")).join(blocks), {})

    @classmethod
    def as_file(cls, fill: Fillers, parts: list[list[str]]) -> "Page":
        shown = filed(fill, parts)
        return cls(shown.text, shown.marks)

    @classmethod
    def with_pages(cls, rng: random.Random, groups: list[list[str]]) -> "Page":
        """Pages of one to three paragraphs, not all of them there; a mark may stand on a line of its own."""
        number, marks, blocks = rng.choice((1, 1, 1, rng.randint(2, 400))), {}, []
        gap, first = rng.choice((" ", " ", "\n")), 0
        while first < len(groups):
            page = groups[first : first + rng.choice((1, 1, 1, 2, 3))]
            first += len(page)
            marks |= {sentence: f"[p.{number}]" for group in page for sentence in group}
            between = rng.choice(("\n\n", "\n", " "))
            blocks.append(f"[p.{number}]{gap}" + between.join(" ".join(group) for group in page))
            number += 1 if rng.random() < 0.9 else rng.randint(2, 9)
        return cls("\n\n".join(blocks), marks)


def paragraphs(rng: random.Random, parts: list[list[str]]) -> list[list[str]]:
    """Sometimes one paragraph for each part, else paragraphs of two to six sentences."""
    if rng.random() < 0.5:
        return [part for part in parts if part]
    sentences = [sentence for part in parts for sentence in part]
    size = rng.randint(2, 6)
    return [sentences[first : first + size] for first in range(0, len(sentences), size)]


def as_typed(fill: Fillers, question: str) -> str:
    """The question as some person might type it; evaluation asks plainly."""
    rng, style = fill.rng, fill.rng.random()
    if fill.held_out:
        return question
    question = with_synonyms(rng, question) if rng.random() < SYNONYM_SHARE else question
    if style > 0.42:
        return question
    if style > 0.36:
        return question + rng.choice(QUESTION_TAILS)
    if style < 0.13:
        lead = rng.choice(QUESTION_LEADS)
        return lead + (question if lead[-2] in ":.!?" else question[0].lower() + question[1:])
    if style < 0.25:
        return question[0].lower() + question[1:].rstrip("?.")
    if style < 0.3:
        return question.lower()
    return misspelled(rng, question) if style < 0.33 else shortened(rng, question)


def shortened(rng: random.Random, question: str) -> str:
    """A few words, as for a search."""
    words = [word for word in question.rstrip("?.").split() if word.lower() not in SMALL_WORDS]
    return " ".join(words).lower() + rng.choice(("", "?")) if len(words) > 2 else question


def dressed(fill: Fillers, forms: tuple[str, ...]) -> str:
    names = {
        "a": fill.first_name(),
        "b": fill.first_name(),
        "w": fill.word(),
        "v": fill.thing(),
        "n": fill.integer(1, 60),
    }
    return fill.rng.choice(forms).format(**names)


def quote(rng: random.Random, fact: DocumentFact) -> str:
    """The sentence in quotes, sometimes after the short answer."""
    if fact.short and rng.random() < 0.15:
        return f'{capitalised(fact.short)}. The document says: "{fact.sentence}"'
    return rng.choice(QUOTES).format(s=fact.sentence)
