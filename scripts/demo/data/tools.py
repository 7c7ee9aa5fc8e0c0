"""Owns chats with tools: which tools are offered, requests one after another, denials, and when not to call.

The words are in text/tools_*.txt. Of a held-out filler (`Fillers.held_out`) the phrasings, names, numbers and split
lists are disjoint from training's.
"""

import re
from dataclasses import dataclass
from typing import Any

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.documents import DocumentWriter, quote
from demo.data.handwritten import Handwritten
from demo.data.passages import content_words
from demo.data.tool_schemas import EVERYDAY, REGISTRY, TOOLS, Offer, Tool
from demo.data.tool_uses import Use, Uses, turns_of
from demo.data.topics import DocumentFact
from demo.data.words import Fillers

__all__ = ["TOOLS", "Case", "Tool", "ToolWriter", "Use"]
# Small talk that looks like a request for a tool.
LIKE_A_REQUEST = re.compile(
    r"\d|\b(time|date|days?|today|years?|months?|weather|rain|files?|search|remember|note|plus|minus|document|text"
    r"|clock|late|calculate|math|folder|command|aside|read|open|run|times|half|sum)\b",
    re.I,
)
ANSWERS_TALK = {"define_word", "find_recipe", "random_number", "web_search", "translate", "take_note", "play_music"}
CAN_BE_MISSED = {"get_weather", "play_music", "get_stock_price", "book_table", "set_light", "set_alarm", "create_event"}
DOCUMENT_ASKED = (
    "{q}", "{q} Look in the document.", "Look in the document: {q}", "Search the document: {q}",
    "{q} It is in the attached document.", "I attached a document. {q}", "Check the document. {q}",
    "According to the document: {q}", "{q} Please search the document.", "Use the document: {q}",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A single request and the schemas it comes with."""

    schemas: tuple[dict[str, Any], ...]
    use: Use


def draw_offers(fill: Fillers) -> list[Offer]:
    """One to nine tools: often the application's own, else under varied names, with others to distract."""
    rng = fill.rng
    kind, is_own = rng.random(), rng.random() < 0.45
    if kind < 0.3:
        return [tool.offer(rng, is_own=True) for tool in rng.sample(REGISTRY, rng.choice((9, 9, 9, 8, 7)))]
    if kind < 0.5:
        tools = rng.sample(REGISTRY, rng.choice((1, 2, 3, 4, 5)))
    elif kind < 0.65:
        tools = rng.sample(REGISTRY, rng.choice((1, 2, 3))) + rng.sample(EVERYDAY, rng.choice((1, 2, 3)))
    else:
        tools = rng.sample(TOOLS, rng.choice((1, 2, 3, 3, 4, 4, 5, 6, 8)))
    offers: dict[str, Offer] = {}
    for tool in rng.sample(tools, len(tools)):
        offer = tool.offer(rng, is_own)
        offers[offer.name] = offer
    return list(offers.values())


class ToolWriter:
    def __init__(self, documents: DocumentWriter, handwritten: Handwritten) -> None:
        self.documents, self.handwritten, self.uses = documents, handwritten, Uses()

    def chat(self, fill: Fillers) -> Conversation:
        """One to three requests under one list of tools; some need no tool."""
        offers = draw_offers(fill)
        turns: list[Turn] = []
        for _ in range(fill.rng.choice((1, 1, 2) if len(offers) > 5 else (1, 2, 2, 3))):
            turns += self.exchange(fill, offers)
        schemas = tuple(offer.schema for offer in offers)
        return Conversation("tool", tuple(turns), tools=schemas, answer_loss="double")

    def case(self, fill: Fillers, tool: Tool) -> Case:
        """One request for the tool among others, with a good result."""
        while True:
            offers = draw_offers(fill)
            mine = [offer for offer in offers if offer.tool is tool]
            if mine:
                return Case(tuple(o.schema for o in offers), self.uses.answered(self.uses.use(fill, mine[0])))

    def exchange(self, fill: Fillers, offers: list[Offer]) -> tuple[Turn, ...]:
        rng = fill.rng
        kind = rng.random()
        if kind < 0.14:
            return self.without_tool(fill, offers)
        if kind < 0.17:
            return self.missing(fill, offers)
        if kind < 0.27:
            uses = self.uses.twice(fill, rng.choice(offers)) if rng.random() < 0.5 else ()
            uses = uses or self.uses.joined(fill, rng.choice(offers), rng.choice(offers))
            if uses:
                return turns_of(*uses)
        if kind < 0.33:
            chain = self.uses.chained(fill, offers)
            if chain:
                return turns_of(chain[0])[:-1] + turns_of(chain[1])[1:]
        weights = [0.4 if offer.tool.name == "clock" else 1.0 for offer in offers]
        offer = rng.choices(offers, weights)[0]
        if offer.tool.name == "search_document" and rng.random() < 0.4:
            return self.document_question(fill, offer)
        return self.request(fill, offer, offers)

    def request(self, fill: Fillers, offer: Offer, offers: list[Offer]) -> tuple[Turn, ...]:
        use, fate = self.uses.use(fill, offer), fill.rng.random()
        if fate < 0.06:
            return turns_of(self.uses.denied(use))
        if fate < 0.12:
            return turns_of(self.uses.answered(use, "errors"))
        use = self.uses.answered(use)
        follower = self.uses.follower(fill, use, offers) if fill.rng.random() < 0.3 else None
        return turns_of(use) + (turns_of(follower) if follower else ())

    def without_tool(self, fill: Fillers, offers: list[Offer]) -> tuple[Turn, ...]:
        rng, names = fill.rng, {offer.tool.name for offer in offers}
        if rng.random() < 0.08:
            *most, last = [offer.name for offer in offers]
            answer = f"I can use {', '.join(most)} and {last}." if most else f"I can use {last}."
            return pairs(self.uses.texts.line(fill, "tools"), answer)
        if not names & ANSWERS_TALK and rng.random() < 0.6:
            question, answer = self.handwritten.exchange(rng)
            if not LIKE_A_REQUEST.search(question):
                return pairs(question, answer)
        outcome, slots = self.uses.texts.outcome(fill, "no tool"), self.uses.slots(fill)
        return pairs(slots.text(outcome.result), slots.text(rng.choice(outcome.answers)))

    def missing(self, fill: Fillers, offers: list[Offer]) -> tuple[Turn, ...]:
        """A request for a tool that is not there."""
        names = {offer.tool.name for offer in offers}
        possible = [tool for tool in EVERYDAY if tool.name in CAN_BE_MISSED - names]
        use = self.uses.use(fill, fill.rng.choice(possible).offer(fill.rng, is_own=True))
        return pairs(use.asked, fill.rng.choice(self.uses.texts.outcomes["missing"][0].answers))

    def document_question(self, fill: Fillers, offer: Offer) -> tuple[Turn, ...]:
        """A question about a fact; the query is the question's content words, the result some sentences around it."""
        facts: list[DocumentFact] = []
        while not facts:
            facts = [fact for fact in self.documents.facts(fill, quoting=0.3) if fact.questions]
        index = fill.rng.randrange(len(facts))
        fact = facts[index]
        question = fill.rng.choice(fact.questions)
        query = " ".join(content_words(question)[-4:])
        asked = fill.phrasing(DOCUMENT_ASKED).format(q=question)
        found = "\n".join(other.sentence for other in facts[max(0, index - 1) : index + 2])
        called = Turn("assistant", calls=(offer.call({"topic": query}),))
        return Turn("user", asked), called, Turn("tool", found), Turn("assistant", quote(fill.rng, fact))
