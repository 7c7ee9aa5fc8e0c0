"""Training chats in the application's form: its tools as it offers them, and none called without need."""

import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.app_chats import CHAT_OFFERS, OFFERS, AppChats  # noqa: E402
from demo.data.conversation import Conversation, pairs, render  # noqa: E402
from demo.data.documents import DocumentWriter  # noqa: E402
from demo.data.handwritten import BEFORE, Handwritten, beside, without  # noqa: E402
from demo.data.passages import Passage, Passages  # noqa: E402
from demo.data.readings import read_readings  # noqa: E402
from demo.data.reasoning import with_thoughts  # noqa: E402
from demo.data.tools import ToolWriter  # noqa: E402
from demo.data.topics import TopicWriter  # noqa: E402
from demo.data.words import Fillers  # noqa: E402
from demo.questions import Item, contains, in_app, put  # noqa: E402

from app.tools.registry import ORDER  # noqa: E402

TEXT = ROOT / "scripts" / "demo" / "text"


@pytest.fixture(scope="module")
def chats() -> AppChats:
    passage = Passage(
        ("Anna sold 40 boats.", "The harbour froze in 1911.", "Fishing began again in spring.", "Prices rose at once."),
        (("How many boats did Anna sell?",), ("When did the harbour freeze?",), ("When did fishing begin?",), ()),
    )
    spoken = ["The lake froze in 1911. Skaters came from Harnow. The ice held for nine weeks."] * 3
    passages = Passages(spoken + ["A lamp is kept in a dry place."] * 9, ("lamp", "rope"), [passage] * 401)
    documents = DocumentWriter(passages, TopicWriter(TEXT / "topics.txt"), read_readings(TEXT), [])
    handwritten = Handwritten(TEXT)
    return AppChats(documents, handwritten, ToolWriter(documents, handwritten))


def fill(seed: int) -> Fillers:
    return Fillers(random.Random(seed), ("lamp", "rope", "book"))


def test_the_tools_are_those_of_the_application_in_its_order():
    assert tuple(offer.name for offer in OFFERS) == ORDER
    assert tuple(offer.name for offer in CHAT_OFFERS) == tuple(name for name in ORDER if name != "search_document")


def test_a_document_is_quoted_and_not_searched(chats):
    for seed in range(30):
        chat = chats.about_document(fill(seed), 0)
        assert len(chat.tools) == len(OFFERS)
        assert "```" in "".join(turn.content for turn in chat.turns if turn.role == "user")
        assert not any(turn.calls for turn in chat.turns)


def test_most_chats_call_no_tool(chats):
    drawn = [chats.talk(fill(seed)) for seed in range(60)]
    calling = sum(any(turn.calls for turn in chat.turns) for chat in drawn)
    assert 0 < calling < 20
    assert all(len(chat.tools) == len(CHAT_OFFERS) for chat in drawn)


def test_small_talk_beside_a_document_is_not_looked_for_in_it(chats):
    reasons = []
    for seed in range(40):
        chat = with_thoughts(random.Random(seed), chats.about_document(fill(seed), 0))
        answers = [turn for turn in chat.turns if turn.role == "assistant"]
        reasons += [turn.reasoning for turn in answers if "document" not in turn.content]
    assert reasons
    assert not any("The sentence says" in reason for reason in reasons)


def test_a_question_beside_another_sentence_stays_whole():
    for seed in range(40):
        text = beside(random.Random(seed), "why do cats purr")
        assert "hy do cats purr" in text
        assert text.startswith((*BEFORE, "Why do cats purr? "))


def test_small_words_go_unless_too_few_are_left():
    assert without(frozenset({"do", "i"}), 2, random.Random(1), "how do i boil eggs") == "how boil eggs"
    assert without(frozenset({"do", "i"}), 2, random.Random(1), "do i swim") == "do i swim"


def test_a_thought_weighs_most_where_it_decides():
    said = "Anna sells boats today and buys nets."
    plain = Conversation("document", pairs(f"{said}\n\nWho buys?", f'The document says: "{said}"'), learns_choices=True)
    segments = render(with_thoughts(random.Random(1), plain))
    heavy = [segment.text for segment in segments if segment.loss == "heavy"]
    assert heavy == [' The sentence says: "Anna sells boats', 'The document says: "Anna sells boats']
    assert any(s.loss == "full" and s.text.startswith("I look for the answer") for s in segments)


def test_evaluation_can_put_its_questions_in_the_application():
    item = Item(put("What is a slot?"), contains("slot"))
    asked = in_app([item], CHAT_OFFERS)[0]
    assert [tool["function"]["name"] for tool in asked.conversation.tools] == [offer.name for offer in CHAT_OFFERS]
    assert asked.conversation.turns == item.conversation.turns
    assert asked.passes is item.passes
