"""Owns the seeded questions of evaluation and the exact rule of each: names, numbers and phrasings are held out."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from demo.data.app_chats import schemas
from demo.data.conversation import Call, Conversation, Turn, render_call
from demo.data.documents import DocumentItem
from demo.data.handwritten import varied
from demo.data.memory import recall_chat
from demo.data.mixture import Generators
from demo.data.passages import content_words
from demo.data.sums import asked_and_answered
from demo.data.titles import title_chat
from demo.data.tool_schemas import Offer
from demo.data.tools import TOOLS

HOTSLOT_STRIDE = 37  # spreads few items over all subjects
CHARACTERS_PER_TOKEN = 3.35
PASSAGES_BESIDE = 0.4  # share of the teacher's passages among the parts of a longer document
NOT_THERE = re.compile(r"does not (say|mention)|cannot find", re.I)


@dataclass(frozen=True)
class Item:
    """A conversation that waits for an answer, and the rule that the answer must pass."""

    conversation: Conversation
    passes: Callable[[str], bool]


def contains(key: str) -> Callable[[str], bool]:
    return lambda answer: key.lower() in answer.lower()


def is_refusal(answer: str) -> bool:
    return bool(NOT_THERE.search(answer))


def document_item(document: DocumentItem) -> Item:
    """The first question of the document; the answer has its key, or says that there is none."""
    first = Conversation("document", document.conversation.turns[:1], document.conversation.system)
    key = document.keys[0]
    return Item(first, contains(key.rstrip(".")) if key else is_refusal)


class Questions:
    """Draws the items of every score."""

    def __init__(self, generators: Generators, seed: int) -> None:
        self.generators, self.seed = generators, seed

    def fill(self, number: int):
        return self.generators.fill(random.Random(self.seed * 100_003 + number), held_out=True)

    def documents(self, count: int, tokens: int = 0) -> list[Item]:
        """On facts of documents of about so many tokens; 0 is one or two subjects."""
        characters, quoting = int(tokens * CHARACTERS_PER_TOKEN), PASSAGES_BESIDE if tokens else 0.0
        return self.first_questions(count, lambda first: bool(first.name), characters, quoting, missing=0)

    def quoted(self, count: int) -> list[Item]:
        """The teacher's questions on its own passages."""
        return self.first_questions(count, lambda first: True, 0, 1.0, missing=0)

    def not_in_document(self, count: int) -> list[Item]:
        return self.first_questions(count, lambda first: first is None, 0, PASSAGES_BESIDE, missing=1)

    def first_questions(
        self, count: int, suits: Callable, characters: int, quoting: float, missing: float
    ) -> list[Item]:
        items: list[Item] = []
        number = 0
        while len(items) < count:
            document = self.generators.documents.item(self.fill(number), characters, quoting, missing)
            number += 1
            items += [document_item(document)] if suits(document.facts[0]) else []
        return items

    def tool_requests(self, count: int) -> tuple[list[Item], list[Item], list[Item]]:
        """-> well-formed, right call, result used. Phrasings, names, numbers and split words are held out."""
        formed, right, used = [], [], []
        for number in range(count):
            case = self.generators.tools.case(self.fill(number), TOOLS[number % len(TOOLS)])
            use, asked = case.use, (Turn("user", case.use.asked),)
            request = Conversation("tool", asked, tools=case.schemas)
            formed.append(Item(request, is_well_formed))
            right.append(Item(request, is_call(use.call)))
            answered = (*asked, Turn("assistant", calls=(use.call,)), Turn("tool", use.result))
            used.append(Item(Conversation("tool", answered, tools=case.schemas), uses_result(use.keys)))
        return formed, right, used

    def recall(self, count: int, between: int) -> list[Item]:
        """Values, and the ways to tell and to ask, are held out."""
        items = []
        for number in range(count):
            fill = self.fill(number)
            chat, keys = recall_chat(fill, self.generators.small_talk(fill), between)
            turns = chat.turns[: len(chat.turns) - 2 * len(keys) + 1]
            items.append(Item(Conversation("recall", turns), contains(keys[0])))
        return items

    def hotslot(self, count: int) -> list[Item]:
        """Held-out ways to ask; an answer passes with 60 % of the content words of the text written for it."""
        items = []
        blocks = self.generators.handwritten.hotslot
        for number in range(count):
            rng = self.fill(number).rng
            block = blocks[number * HOTSLOT_STRIDE % len(blocks)]
            question = varied(rng, block.question(rng, held_out=True))
            items.append(Item(put(question), overlaps(block.answers)))
        return items

    def titles(self, count: int) -> list[Item]:
        """Held-out conversations and ways to ask. Usable: is_title."""
        items = []
        for number in range(count):
            fill = self.fill(number)
            exchange = self.generators.titled(fill)
            asked = title_chat(fill, *exchange).turns[:1]
            items.append(Item(Conversation("title", asked), is_title(" ".join(exchange))))
        return items

    def sums(self, count: int) -> list[Item]:
        """Held-out pairs of numbers and ways to ask."""
        drawn = [asked_and_answered(self.fill(number)) for number in range(count)]
        return [Item(put(question), ends_with(str(pair.result))) for pair, question, _ in drawn]


def put(question: str) -> Conversation:
    return Conversation("chat", (Turn("user", question),))


def in_app(items: list[Item], offers: tuple[Offer, ...]) -> list[Item]:
    """The items with these tools on offer, which they do not need."""
    return [replace(item, conversation=replace(item.conversation, tools=schemas(offers))) for item in items]


def is_well_formed(answer: str) -> bool:
    parameter = r"<parameter=\w+>\n[^<]*\n</parameter>\n"
    return bool(
        re.fullmatch(rf"(<tool_call>\n<function=\w+>\n({parameter})*</function>\n</tool_call>\n?)+", answer.strip())
    )


def is_call(call: Call) -> Callable[[str], bool]:
    return lambda answer: answer.strip() == render_call(call)


def uses_result(keys: tuple[str, ...]) -> Callable[[str], bool]:
    """A text, not a call, with everything of the result that every reference answer has."""
    return lambda answer: bool(answer.strip()) and "<tool_call>" not in answer and all(key in answer for key in keys)


def overlaps(answers: tuple[str, ...]) -> Callable[[str], bool]:
    def passes(answer: str) -> bool:
        given = {word.lower() for word in content_words(answer)}
        wanted = [{word.lower() for word in content_words(text)} for text in answers]
        return any(len(words & given) >= 0.6 * len(words) for words in wanted)

    return passes


def is_title(chat: str) -> Callable[[str], bool]:
    """Usable: one to six words in one line, no full stop, and a content word of the conversation, if it has any."""
    words = {word.lower() for word in content_words(chat)}

    def passes(title: str) -> bool:
        own = {word.lower() for word in content_words(title)}
        is_short = 1 <= len(title.split()) <= 6 and "\n" not in title.strip() and not title.endswith(".")
        return is_short and (bool(own & words) or not own)

    return passes


def ends_with(result: str) -> Callable[[str], bool]:
    return lambda answer: (re.findall(r"\d+", answer) or [""])[-1] == result
