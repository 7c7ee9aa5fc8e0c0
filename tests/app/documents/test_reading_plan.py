"""A document that fits is read whole; else passages of the question, or everything in pieces. Each plan says why."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.blocks import blocks_of
from app.documents.passages import Passage, merged, pieces_of, searched_passages
from app.documents.reading_plan import LEAST_NOTE_TOKENS, PIECE_TOKENS, reading_plan, wants_all
from app.documents.search import find_passages
from app.errors import ReadingError
from app.messages import Attachment

PAGES = [
    f"The keeper of harbour {number} is called Petra{number}. " + "Boats come and go. " * 60 for number in range(40)
]
HARBOURS = Attachment("harbours.pdf", "\ue00c".join(PAGES), "pages")
TOKENS = sum(map(len, PAGES)) // 4


def places(document: Attachment, question: str) -> list[int]:
    return [blocks_of(document)[passage.first].place for passage in find_passages(document, question)]


def test_what_fits_is_read_whole() -> None:
    plan = reading_plan(HARBOURS, "Who is Petra7?", TOKENS, TOKENS)
    assert (plan.mode, plan.passages, plan.why, plan.num_tokens) == ("whole", (), "it fits", TOKENS)


def test_what_does_not_fit_is_searched() -> None:
    plan = reading_plan(HARBOURS, "Who is the keeper of harbour 7?", 1000, TOKENS)
    assert plan.mode == "passages"
    assert "room for 1,000" in plan.why
    assert plan.num_tokens <= 1000
    assert "[p.8] The keeper of harbour 7 is called Petra7." in "".join(p.text(HARBOURS) for p in plan.passages)
    assert list(plan.passages) == sorted(plan.passages, key=lambda passage: passage.first)


@pytest.mark.parametrize("question", ["Summarise this.", "", "List all harbours.", "What is the document about?"])
def test_questions_for_everything_are_read_in_pieces(question: str) -> None:
    plan = reading_plan(HARBOURS, question, 4000, TOKENS)
    assert plan.mode == "all"
    assert plan.passages[0].first == 0
    assert plan.passages[-1].end == len(blocks_of(HARBOURS))
    assert all(a.end == b.first for a, b in zip(plan.passages, plan.passages[1:], strict=False))
    assert max(len(piece.text(HARBOURS)) for piece in plan.passages) / 4 <= PIECE_TOKENS
    assert plan.note_tokens * len(plan.passages) <= 4000
    assert f"{len(plan.passages)} pieces" in plan.why


def test_a_question_in_other_words_is_read_in_pieces() -> None:
    plan = reading_plan(HARBOURS, "Welche Vorschriften gelten?", 4000, TOKENS)
    assert (plan.mode, "none of the question's words" in plan.why) == ("all", True)


def test_choices_are_kept_or_refused_in_numbers() -> None:
    assert reading_plan(HARBOURS, "Petra7?", TOKENS, TOKENS, "passages").mode == "passages"
    assert reading_plan(HARBOURS, "Petra7?", TOKENS, TOKENS, "all").mode == "all"
    assert reading_plan(HARBOURS, "Summarise", 10, 10, "whole").why == "as chosen"
    with pytest.raises(ReadingError, match=r"harbours\.pdf has 11,000 tokens and there is room for 5; read it by"):
        reading_plan(HARBOURS, "Petra7?", 5, 11000, "whole")
    with pytest.raises(ReadingError, match="none of the question's words; ask in its words"):
        reading_plan(HARBOURS, "Vorschriften", 4000, TOKENS, "passages")
    with pytest.raises(ReadingError, match=r"would be read in [\d,]+ pieces, whose notes don't fit"):
        reading_plan(HARBOURS, "Summarise", LEAST_NOTE_TOKENS, TOKENS)
    with pytest.raises(ReadingError, match="room for 0 tokens only; start a new chat"):
        reading_plan(HARBOURS, "Who is Petra7?", -5, TOKENS)


def test_what_was_shown_is_not_shown_again() -> None:
    question = "Who is the keeper of harbour 7?"
    first = reading_plan(HARBOURS, question, 1000, TOKENS)
    again = reading_plan(HARBOURS, question, 1000, TOKENS, shown=merged(first.passages))
    assert not set(first.passages) & set(again.passages)
    assert f"{len(first.passages)} shown before" in again.why


@pytest.mark.parametrize(
    ("question", "everything"),
    [
        ("Summarize the report", True),
        ("give me all the dates", True),
        ("tl;dr", True),
        ("How many times is Petra mentioned?", True),
        ("What are the main points?", True),
        ("How many boats did Petra own?", False),
        ("Who founded Vellmar?", False),
        ("Does the shop close at night?", False),
        ("What happens every morning?", False),
    ],
)
def test_which_questions_want_everything(question: str, everything: bool) -> None:
    assert wants_all(question) is everything


def test_search_knows_stems_accents_and_unspaced_scripts() -> None:
    text = "\ue00c".join(
        ["Ships are loading.", "Das Café in Köln.", "今天天气预报说有雨。", "東京は日本の首都です。", "Nothing here."]
    )
    document = Attachment("a.pdf", text, "pages")
    assert places(document, "When is the ship loaded?") == [1]
    assert places(document, "cafe koln") == [2]
    assert places(document, "天气怎么样") == [3]
    assert places(document, "日本の首都は?") == [4]
    assert places(document, "?!") == []
    assert places(document, "") == []


@given(st.text(max_size=80))
def test_any_question_is_taken_literally(question: str) -> None:
    find_passages(Attachment("a", 'one AND two OR "three" NEAR(x)\nfour'), question)


def test_passages_cover_the_document_and_keep_to_pages() -> None:
    passages = searched_passages(HARBOURS)
    assert merged(passages) == ((0, len(blocks_of(HARBOURS))),)
    for passage in passages:
        assert len({block.place for block in blocks_of(HARBOURS)[passage.first : passage.end]}) == 1
    assert pieces_of(Attachment("a", ""), 100) == ()
    assert Passage(0, len(blocks_of(HARBOURS))).place(HARBOURS) == "p.1 to 40"
    assert passages[0].place(HARBOURS) == "p.1"


def test_ranges_are_put_together() -> None:
    assert merged([Passage(5, 7), Passage(0, 2), Passage(2, 3), Passage(6, 9)]) == ((0, 3), (5, 9))


def test_a_large_document_is_searched_in_seconds() -> None:
    lines = (f"The harbour number {number} opens. Its keeper is called Petra{number}." for number in range(200_000))
    large = Attachment("large.txt", "\n".join(lines))
    started = time.monotonic()
    assert places(large, "Who is Petra177123?")[0] <= 177124
    assert "Petra177123." in find_passages(large, "Who is Petra177123?")[0].text(large)
    assert time.monotonic() - started < 20
