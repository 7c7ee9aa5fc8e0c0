"""Owns which of the teacher's wordings may stand for a question: they keep its sense and are nobody else's."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demo.data.filters import PERSONA
from demo.data.handwritten import normalised
from demo.data.passages import ASKING, COMMON
from demo.data.requests import IMPERATIVES, QUESTION_WORDS
from demo.listing import listed

FEWEST_WORDS, MOST_WORDS = 2, 24
# These tell how somebody asks, not what about.
EMPTY = COMMON | ASKING | frozenset(listed("happen happens press mean means way best thing things could would should"))
APP = "hotslot"
STEM = 6
KEPT_WEIGHT = 0.25  # of the rarities of a question's words
DROPPED_SHARE = 0.3
MOST_PER_ORIGINAL = 16
ORDERS = frozenset(IMPERATIVES + listed("compose recommend suggest name describe help"))
QUESTIONS = frozenset(QUESTION_WORDS + listed("will whats who'd how's whom shall may any"))
POLITE = re.compile(
    r"^(please,? |kindly |(can|could|would|will) (you|u) (please )?|"
    r"((do (you|u) know|tell|explain)( to)?( me)? (?=(what|who|how|why|when|where|which|if|whether)\b)))+",
    re.I,
)
REPLY = re.compile(
    r"(i'm sorry|i am sorry|sorry to|i understand|i can('t|not)? help|sure\b|of course|here (is|are)|yes\b|no,|that's|"
    r"(in other words|question|answer|rephrased|other words)\b)",
    re.I,
)
NEGATED = re.compile(r"\b(not|no|never|nothing|nobody|none|without|cannot|cant|dont|doesnt|wont|isnt)\b|n't\b", re.I)
OPPOSITES = [
    frozenset(pair.split("/"))
    for pair in listed(
        "on/off start/stop start/end begin/end open/close more/less more/fewer most/least first/last left/right "
        "up/down hot/cold big/small best/worst good/bad better/worse fast/slow faster/slower before/after above/below "
        "in/out increase/decrease raise/lower import/export longer/shorter long/short old/new add/remove show/hide "
        "buy/sell win/lose high/low larger/smaller bigger/smaller happy/sad lock/unlock love/hate like/dislike to/from"
    )
]
NUMBER_WORDS = dict(
    zip(listed("two three four five six seven eight nine ten eleven twelve"), range(2, 13), strict=True)
)
FIRST_PERSON, SECOND_PERSON = re.compile(r"\b(i|me|myself)\b", re.I), re.compile(r"\b(you|yourself|u)\b", re.I)
OWNERS = re.compile(r"\b(my|mine|your|yours|our|his|her|their)\b", re.I)
# Whoever does it, the same is asked.
ANYBODY = re.compile(
    r"\b(can|could|would|will|do) (you|u) (please )?(tell|explain|give|show|help|know|describe|recommend|suggest)\b"
    r"|\b(for|to|show|tell|give|help|let|remind) me\b",
    re.I,
)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def kind_of(text: str) -> str:
    """order, question or statement"""
    body = POLITE.sub("", text)
    first = (words(body) or [""])[0]
    if first in ORDERS:
        return "order"
    return "question" if first in QUESTIONS or words(text)[:1] != words(body)[:1] or text.endswith("?") else "statement"


def content(text: str) -> frozenset[str]:
    """The beginnings of its content words, and its numbers, with the letters before them ("f5")."""
    found = re.findall(r"[a-z]*\d+|[a-z]+", text.lower())
    return frozenset(stem_of(w) for w in found if (len(w) > 2 or w[-1].isdigit()) and w not in EMPTY)


def stem_of(word: str) -> str:
    """The same for "swim" and "swimming"."""
    bare = re.sub(r"(?<=\w{3})(ing|ed|es|s)$", "", word)
    return (bare if bare == word else re.sub(r"([a-z])\1$", r"\1", bare))[:STEM]


def numbers(text: str) -> set[str]:
    digits = re.findall(r"\d+(?:[.,:]\d+)*", text)
    return {*digits, *(str(NUMBER_WORDS[word]) for word in words(text) if word in NUMBER_WORDS)}


def is_flipped(original: str, text: str) -> bool:
    """A negation came or went, or a word gave way to its opposite."""
    said, now = set(words(original)), set(words(text))
    swapped = any(pair & now - said and pair & said - now for pair in OPPOSITES)
    return swapped or bool(NEGATED.search(original)) != bool(NEGATED.search(text))


def keeps_persons(original: str, text: str) -> bool:
    """Mine stays mine and you stay you; only a question may leave out its "I", or say it where nobody was named."""
    said, now = ANYBODY.sub("", original), ANYBODY.sub("", text)
    owned = [{word.lower() for word in OWNERS.findall(part)} for part in (said, now)]
    spoken = [bool(FIRST_PERSON.search(part)) for part in (said, now)]
    addressed = [bool(SECOND_PERSON.search(part)) for part in (said, now)]
    if owned[0] != owned[1] or addressed[0] != addressed[1]:
        return False
    return spoken[0] == spoken[1] or (kind_of(original) == "question" and not addressed[0])


def fault(original: str, text: str) -> str | None:
    """The reason why this is no other wording, as far as the two texts tell it."""
    is_line = text.isascii() and text.isprintable() and FEWEST_WORDS <= len(text.split()) <= MOST_WORDS
    checks = (
        ("form", not is_line or text.count("?") > max(1, original.count("?"))),
        ("same", normalised(text) == normalised(original)),
        ("persona", PERSONA.search(text)),
        ("reply", REPLY.match(text) and not REPLY.match(original)),
        ("kind", kind_of(text) != kind_of(original)),
        ("numbers", numbers(text) != numbers(original)),
        ("flipped", is_flipped(original, text)),
        ("person", not keeps_persons(original, text)),
    )
    return next((name for name, is_wrong in checks if is_wrong), None)


@dataclass(frozen=True)
class Original:
    """A question of a group that shares its answers; `kept` are texts that a tool call takes from it."""

    text: str
    group: int
    kept: tuple[str, ...] = ()


class KnownQuestions:
    """All questions by their words, to find whose question a text is."""

    def __init__(self, originals: Sequence[Original]) -> None:
        self.groups: dict[str, set[int]] = defaultdict(set)
        self.kept: dict[str, set[str]] = defaultdict(set)
        entries: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for original in originals:
            self.groups[original.text].add(original.group)
            self.kept[original.text].update(original.kept)
            entries[tuple(sorted(content(original.text)))].add(original.group)
        self.normal = {normalised(text) for text in self.groups}
        self.vocabulary = {word for text in self.groups for word in re.findall(r"\b[a-z][a-z']*", text)}
        counts = Counter(stem for entry in entries for stem in entry)
        self.rarity = {stem: math.log(1 + len(entries) / count) for stem, count in counts.items()}
        self.unseen = math.log(1 + len(entries))
        self.owners = list(entries.values())
        self.weights = [self.weight(entry) for entry in entries]
        self.postings: dict[str, list[int]] = defaultdict(list)
        for index, entry in enumerate(entries):
            for stem in entry:
                self.postings[stem].append(index)

    def weight(self, some_stems: Sequence[str]) -> float:
        return sum(self.rarity.get(stem, self.unseen) for stem in sorted(some_stems))

    def names(self, text: str) -> set[str]:
        """Capitalised words, the first one only where it is not known as a plain word."""
        found = [(match.start(), match[0]) for match in re.finditer(r"\b[A-Z]\w*", text)]
        return {w.lower() for at, w in found if w != "I" and (at > 0 or w.lower() not in self.vocabulary)}

    def fault(self, original: str, text: str) -> str | None:
        if normalised(text) in self.normal and normalised(text) != normalised(original):
            return "known"
        if any(text.count(value) != original.count(value) for value in self.kept[original]):
            return "argument"
        said, now = set(re.findall(r"\w+", original.lower())), set(re.findall(r"\w+", text.lower()))
        if self.names(text) - said - {APP} or self.names(original) - now:
            return "name"
        return fault(original, text) or self.fault_of_content(original, text)

    def fault_of_content(self, original: str, text: str) -> str | None:
        said, now = content(original), content(text)
        if not said & now or self.weight(tuple(said & now)) < KEPT_WEIGHT * self.weight(tuple(said)):
            return "content lost"
        if len(now - said) > max(3, len(said) + 1):
            return "content new"
        own, other = self.nearest(text, self.groups[original])
        return "nearer to another" if other > own or (other == own and now != said) else None

    def nearest(self, text: str, groups: set[int]) -> tuple[float, float]:
        """Shared part of the rarities of all words, at the nearest question of these groups and of all others."""
        asked, shared = sorted(content(text)), defaultdict(float)
        for stem in asked:
            for index in self.postings.get(stem, ()):
                shared[index] += self.rarity[stem]
        own, other, weight = 0.0, 0.0, self.weight(asked)
        for index, common in shared.items():
            share = round(common / (weight + self.weights[index] - common), 9)
            if groups.isdisjoint(self.owners[index]):
                other = max(other, share)
            else:
                own = max(own, share)
        return own, other

    def as_typed(self, original: str, text: str) -> str:
        """In small letters and without an end mark where the original is written so."""
        if not original[0].islower():
            return text
        text = re.sub(r"\bI\b", "i", text.rstrip(".?!"))
        first = re.match(r"\w+", text)
        return text if first and first[0].lower() in self.names(text) else text[0].lower() + text[1:]


def best_wordings(scored: Sequence[tuple[tuple[str, str], float]], known: KnownQuestions) -> dict[str, tuple[str, ...]]:
    """Original -> its likeliest wordings.

    A text goes to one original, and to none where the originals it came from have different answers.
    """
    scores = dict(sorted(scored, key=lambda item: item[1]))
    floor = float(np.quantile(list(scores.values()), DROPPED_SHARE)) if scores else 0.0
    likely = sorted((-score, *pair) for pair, score in scores.items() if score >= floor)
    claims: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for _, original, text in likely:
        claims[normalised(text)].append((original, text))
    wordings: dict[str, list[str]] = defaultdict(list)
    for claimants in claims.values():
        original, text = claimants[0]
        if all(known.groups[original] & known.groups[other] for other, _ in claimants):
            wordings[original].append(text)
    return {original: tuple(texts[:MOST_PER_ORIGINAL]) for original, texts in wordings.items()}
