"""Owns chats in the form in which the application puts them: all its tools on offer, documents as it shows them.

Most of what people say there needs no tool, and a document that stands whole in the chat is quoted, not searched.
"""

import random
from dataclasses import replace
from typing import Any

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.documents import DocumentWriter
from demo.data.handwritten import Handwritten
from demo.data.memory import recall_chat
from demo.data.tool_schemas import REGISTRY, Offer
from demo.data.tools import LIKE_A_REQUEST, ToolWriter
from demo.data.words import Fillers

OFFERS = tuple(tool.offer(random.Random(0), is_own=True) for tool in REGISTRY)
CHAT_OFFERS = tuple(offer for offer in OFFERS if offer.name != "search_document")  # without a document there is none
DOCUMENT_SHARE, TALK_SHARE, TOOL_SHARE, RECALL_SHARE, HOTSLOT_SHARE = 0.5, 0.3, 0.2, 0.25, 0.3


class AppChats:
    def __init__(self, documents: DocumentWriter, handwritten: Handwritten, tools: ToolWriter) -> None:
        self.documents, self.handwritten, self.tools = documents, handwritten, tools

    def chat(self, fill: Fillers, characters: int = 0) -> Conversation:
        is_about_document = fill.rng.random() < DOCUMENT_SHARE
        return self.about_document(fill, characters) if is_about_document else self.talk(fill)

    def about_document(self, fill: Fillers, characters: int) -> Conversation:
        """Questions about a document, with small talk before or between them."""
        rng = fill.rng
        item = self.documents.item(fill, characters, filed_share=1.0).conversation
        turns: list[Turn] = list(self.small_talk(rng)) if rng.random() < TALK_SHARE else []
        for first in range(0, len(item.turns), 2):
            turns += item.turns[first : first + 2]
            if rng.random() < TALK_SHARE:
                turns += self.small_talk(rng)
        return replace(item, turns=tuple(turns), tools=schemas(OFFERS))

    def talk(self, fill: Fillers) -> Conversation:
        """Small talk, with something to remember or a tool that is needed now and then."""
        rng = fill.rng
        if rng.random() < RECALL_SHARE:
            between = [self.small_talk(rng) for _ in range(5)]
            turns = list(recall_chat(fill, between, rng.choice((0, 1, 2, 5)))[0].turns)
        else:
            turns = [turn for _ in range(rng.choice((1, 2, 3, 4))) for turn in self.small_talk(rng)]
        if rng.random() < TOOL_SHARE:
            turns += self.tools.exchange(fill, list(CHAT_OFFERS))
            turns += self.small_talk(rng) if rng.random() < TALK_SHARE else ()
        return Conversation("chat", tuple(turns), tools=schemas(CHAT_OFFERS))

    def small_talk(self, rng: random.Random) -> tuple[Turn, ...]:
        """Nothing that a tool could do; questions about the application among it."""
        while True:
            if rng.random() < HOTSLOT_SHARE:
                block = rng.choice(self.handwritten.hotslot)
                return pairs(self.handwritten.asked(rng, block), rng.choice(block.answers))
            question, answer = self.handwritten.exchange(rng)
            if not LIKE_A_REQUEST.search(question):
                return pairs(question, answer)


def schemas(offers: tuple[Offer, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(offer.schema for offer in offers)
