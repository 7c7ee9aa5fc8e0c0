"""Documents that the demo trains on: the quoted sentence is in the text, evaluation is disjoint from training."""

import random
import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
sys.path.insert(0, str(REPO / "scripts"))

from demo.data.conversation import render  # noqa: E402
from demo.data.documents import DocumentWriter, Part, Questions, stranger  # noqa: E402
from demo.data.files import filed  # noqa: E402
from demo.data.handwritten import gist  # noqa: E402
from demo.data.lookups import lookup_chat  # noqa: E402
from demo.data.passages import Passage, Passages, is_answered_alone, stems  # noqa: E402
from demo.data.readings import read_reading, read_readings  # noqa: E402
from demo.data.topics import DocumentFact, TopicWriter  # noqa: E402
from demo.data.words import Fillers, read_common_words  # noqa: E402

from app.chat.context_window import CITATION_REQUEST as APP_REQUEST  # noqa: E402
from app.documents.rendering import fence  # noqa: E402

TEXT = REPO / "scripts" / "demo" / "text"
THINGS = read_common_words(TEXT)["things"]
SPOKEN = ["The lake froze in 1911. Skaters came from Harnow. The ice held for nine weeks. Nobody fell in."] * 3
SPOKEN += [f"A {thing} is kept in a dry place." for thing in THINGS[:20]]


@pytest.fixture(scope="module")
def writer() -> DocumentWriter:
    passage = Passage(
        ("Anna sold 40 boats.", "The harbour froze in 1911.", "Fishing began again in spring.", "Prices rose at once."),
        (("How many boats did Anna sell?",), ("When did the harbour freeze?",), ("When did fishing begin?",), ()),
    )
    passages = Passages(SPOKEN, THINGS, [passage] * 401)
    return DocumentWriter(passages, TopicWriter(TEXT / "topics.txt"), read_readings(TEXT), [])


def shown(item) -> str:
    return item.conversation.system + "\n".join(turn.content for turn in item.conversation.turns[:1])


@pytest.mark.parametrize("characters", [0, 5000, 20000])
@pytest.mark.parametrize("held_out", [False, True])
def test_answers_quote_a_sentence_of_the_document(writer, characters, held_out):
    for seed in range(12):
        item = writer.item(Fillers(random.Random(seed), THINGS, held_out), characters)
        answers = [turn.content for turn in item.conversation.turns if turn.role == "assistant"]
        for answer, fact, key in zip(answers, item.facts, item.keys, strict=True):
            if fact is None:
                assert "document does not" in answer
                assert key == ""
            else:
                assert fact.sentence in answer
                assert fact.sentence in shown(item)
                assert key in fact.sentence


def test_a_mark_is_cited_as_it_stands_before_the_sentence(writer):
    cited = 0
    for seed in range(150):
        item = writer.item(Fillers(random.Random(seed), THINGS))
        for turn, fact in zip(item.conversation.turns[1::2], item.facts, strict=True):
            if fact is not None and turn.content.endswith("]"):
                mark = turn.content[turn.content.rindex("[") :]
                before = shown(item)[: shown(item).index(fact.sentence)]
                assert before.rindex("[") == before.rindex(mark)
                cited += 1
    assert cited > 5


def test_questions_of_evaluation_are_put_in_other_words_than_those_of_training(writer):
    training, evaluation = (Fillers(random.Random(1), THINGS, held_out) for held_out in (False, True))
    forms = [fact.questions for topic in writer.topics.forms for fact in topic.facts if not fact.is_paired]
    for questions in forms:
        assert len(questions) >= 5
        assert not set(training.own_phrasings(questions)) & set(evaluation.own_phrasings(questions))


def test_every_fact_is_asked_for_in_many_ways_of_which_none_is_evaluated(writer):
    training, evaluation = (Fillers(random.Random(1), THINGS, held_out) for held_out in (False, True))
    facts = [fact for topic in writer.topics.forms for fact in topic.facts if not fact.is_paired]
    examined = {gist(question) for fact in facts for question in evaluation.own_phrasings(fact.questions)}
    for fact in facts:
        ways = {*training.own_phrasings(fact.questions), *fact.more, *fact.framed}
        assert len(ways) >= 50
        assert [way for way in (*fact.more, *fact.framed) if gist(way) in examined] == []
        assert all("{n}" in way and way[-1] in "?." for way in (*fact.more, *fact.framed))


def test_missing_questions_ask_for_a_fact_that_was_left_out(writer):
    for seed in range(40):
        item = writer.item(Fillers(random.Random(seed), THINGS), quoting=0.0, missing=1.0)
        assert item.facts[0] is None
        assert item.conversation.turns[1].content.startswith("The document does not")


def test_a_stranger_is_of_the_kind_and_not_in_the_document(writer):
    names = set()
    for seed in range(300):
        fill = Fillers(random.Random(seed), THINGS)
        parts = writer.parts(fill, 0, 0.0)
        asked = Questions(fill, parts).of_a_stranger()
        name = stranger(fill, parts[0])
        names.add(name.split()[0])
        assert name != parts[0].name
        assert asked is None or asked.fact is None
        assert asked is None or not any(part.name in asked.question for part in parts)
        assert ("the" in name.split()) == ("the" in parts[0].name.split())
    assert len(names) > 50
    (anna,) = {q for fact in writer.passages.asked_facts(Fillers(random.Random(1), THINGS))[:1] for q in fact.questions}
    asked = [Questions(Fillers(random.Random(seed), THINGS), [sold(anna)]).of_a_stranger() for seed in range(20)]
    assert all(one is None or (one.fact is None and one.question != anna) for one in asked)
    assert sum(one is not None for one in asked) > 15


def test_of_twins_one_may_lack_what_is_said_of_the_other(writer):
    lacking = 0
    for seed in range(400):
        parts = writer.parts(Fillers(random.Random(seed), THINGS), 0, 0.0)
        if len(parts) < 2 or parts[0].form is not parts[1].form:
            continue
        assert parts[0].name != parts[1].name
        said = {question for fact in parts[0].facts for question in fact.questions}
        lacking += any(said & set(fact.questions) for fact in parts[1].left_out)
    assert lacking > 20
    held_out = [writer.parts(Fillers(random.Random(seed), THINGS, held_out=True), 0, 0.0) for seed in range(100)]
    assert sum(len(parts) > 1 and parts[0].form is parts[1].form for parts in held_out) < 15


def sold(question: str) -> Part:
    return Part([DocumentFact(f"{question.split()[-2]} sold boats.", (question,), "")], [])


def test_evaluation_asks_about_no_stranger(writer, monkeypatch):
    monkeypatch.setattr(Questions, "of_a_stranger", lambda self: pytest.fail("a stranger"))
    for seed in range(20):
        writer.item(Fillers(random.Random(seed), THINGS, held_out=True), quoting=0.4, missing=1.0)


def test_a_passage_question_must_fit_its_own_sentence_best():
    sentences = [stems("The harbour froze in 1911."), stems("The harbour was sold in 1920.")]
    assert is_answered_alone("When did the harbour freeze? The harbour froze?", 0, sentences)
    assert not is_answered_alone("What of the harbour?", 0, sentences)


def test_readings_are_read_as_their_format_says():
    reading = read_reading("# Pool\nIt opens in May.\n\nKids pay half.\n< Ada\n?1 When?\n?2 How much?\n?- How deep?")
    assert reading.sentences == ("It opens in May.", "Kids pay half.")
    assert reading.questions == (("When?",), ("How much?",))
    assert reading.unanswered == ("How deep?",)


def test_every_reading_has_questions_and_whole_sentences():
    for reading in read_readings(TEXT):
        assert sum(map(len, reading.questions)) >= 6
        assert reading.unanswered
        assert all(sentence[-1] in ".!?" and '"' not in sentence for sentence in reading.sentences)


def test_a_reading_may_lack_a_sentence_and_is_then_asked_for_it(writer):
    answered = {f: reading for reading in writer.readings for q in reading.questions for f in q}
    lacking = 0
    for seed in range(200):
        part = writer.reading(Fillers(random.Random(seed), THINGS))
        (gone,) = part.left_out
        if gone.is_sure:
            continue
        lacking += any(question in answered for question in gone.questions)
        assert gone.sentence not in [fact.sentence for fact in part.facts]
        asked = [Questions(Fillers(random.Random(seed), THINGS), [part]).missing() for seed in range(5)]
        assert all(one is None or one.fact is None for one in asked)
    assert lacking > 40


def test_no_way_to_ask_about_a_reading_tells_whether_it_is_answered(writer):
    """Shares are near 17 %; "how old" and "how many" are asked for what is missing more often."""
    counts: dict[str, list[int]] = {}
    for seed in range(4000):
        fill = Fillers(random.Random(seed), THINGS)
        questions = Questions(fill, [writer.reading(fill)])
        for one in (*(questions.answered() for _ in range(4)), questions.missing()):
            opening = " ".join(one.question.lower().split()[:2]) if one else ""
            counts.setdefault(opening, [0, 0])[bool(one and one.fact is None)] += 1
    shares = {opening: missing / (has + missing) for opening, (has, missing) in counts.items() if has + missing > 150}
    assert len(shares) > 20
    assert {opening: share for opening, share in shares.items() if opening and not 0.04 < share < 0.5} == {}


def test_the_words_that_choose_a_sentence_weigh_most_and_no_text_is_changed(writer):
    fill = Fillers(random.Random(5), THINGS)
    for _ in range(60):
        chat = writer.item(fill).conversation
        plain = render(replace(chat, learns_choices=False))
        segments = render(chat)
        assert "".join(s.text for s in segments) == "".join(s.text for s in plain)
        for before, after in pairwise(segments):
            if before.loss == "heavy" and after.loss == "full":
                assert before.text.split('"')[-1].count(" ") == 2
                assert after.text.startswith(" ")


def test_files_are_shown_as_the_application_does():
    requests = set()
    for seed in range(60):
        parts = [[f"Sentence {seed} {number}." for number in range(9)], ["Another one.", "And one more."]]
        shown = filed(Fillers(random.Random(seed), ("lamp", "rope")), parts)
        name, body = re.match(r"File ([^\n]+):\n```\n(.*?)\n```", shown.text, re.S).groups()
        assert shown.text.startswith(fence(f"File {name}:", body))
        assert len(shown.marks) == 11
        for sentence, mark in shown.marks.items():
            assert re.findall(r"\[(?:p\.|line )\d+\]", shown.text[: shown.text.index(sentence)])[-1] == mark
        requests |= set() if shown.text.endswith("```") else {shown.text.rsplit("\n\n", 1)[-1]}
    assert requests == {APP_REQUEST.format(mark=mark) for mark in ("[p.3]", "[line 12]", "[p.3] or [line 12]")}


def test_lists_answer_with_what_stands_there():
    for seed in range(200):
        chat = lookup_chat(Fillers(random.Random(seed), ("lamp", "rope"), lexicon=("otter", "quartz", "fern", "gable")))
        text = chat.turns[0].content
        for turn in chat.turns[1::2]:
            said = re.sub(r" \[(p\.|line )\d+\]$", "", turn.content).removeprefix("It is ").split('"')
            assert (said[1] if len(said) > 1 else said[0].rstrip(".")) in text or "does not" in turn.content, turn
