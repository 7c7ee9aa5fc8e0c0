"""Everyday training chats: texts are whole, and evaluation asks with values and phrasings that training never draws."""

import random
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.composed import alternatives, fill_in, turned  # noqa: E402
from demo.data.conversation import Turn, pairs  # noqa: E402
from demo.data.fact_kinds import KINDS, MORE_KINDS, OTHERS  # noqa: E402
from demo.data.fact_values import DRAWS  # noqa: E402
from demo.data.followups import ASKED, REPEAT, SHORTER, follow_up  # noqa: E402
from demo.data.handwritten import TOPICS, Handwritten, lookup_blocks, normalised, read_blocks, unexamined  # noqa: E402
from demo.data.memory import (  # noqa: E402
    around,
    beside_others,
    corrected,
    corrected_twice,
    in_passing,
    of_two_people,
    one_of_two_corrected,
    owned,
    recall_chat,
    staged_chat,
    telling,
    untold_chat,
    with_chatter,
)
from demo.data.reasoning import reason_for, with_thoughts  # noqa: E402
from demo.data.summaries import condensed, summary_chat, summary_of  # noqa: E402
from demo.data.sums import Sum, asked_and_answered, small_sum, steps_of, sum_chat  # noqa: E402
from demo.data.synonyms import with_synonyms  # noqa: E402
from demo.data.titles import MORE_ASKED, title_chat, title_of  # noqa: E402
from demo.data.words import Fillers  # noqa: E402
from demo.questions import is_title  # noqa: E402

TEXT = ROOT / "scripts" / "demo" / "text"
TALK = [pairs("Hello", "Hi!"), pairs("Tell me a joke.", "No.")]


@pytest.fixture(scope="module")
def handwritten() -> Handwritten:
    return Handwritten(TEXT)


def fill(seed: int, held_out: bool = False) -> Fillers:
    return Fillers(random.Random(seed), ("lamp", "rope", "book"), held_out)


def every_block(handwritten: Handwritten):
    return [block for topic in handwritten.topics for block in topic]


def test_alternatives_are_every_choice():
    assert alternatives("how [do/can] i sleep[/ well]") == [
        "how do i sleep",
        "how do i sleep well",
        "how can i sleep",
        "how can i sleep well",
    ]


def test_no_text_has_a_mark_left(handwritten):
    for block in every_block(handwritten):
        assert block.answers
        for text in (*block.questions, *block.answers):
            assert text
            assert text == text.strip()
            assert not re.search(r"[{}|]|\[(?!p\.|line)", text), text


def test_chats_are_the_same_for_a_seed(handwritten):
    first, again = (texts.chat(random.Random(3)) for texts in (handwritten, Handwritten(TEXT)))
    assert first == again


def test_lookup_keys_have_one_value():
    for line in (TEXT / "lookup.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            assert all(entry.count(" = ") >= 1 for entry in line[2:].split("; ")), line[:60]
    assert len(lookup_blocks(TEXT / "lookup.txt")) > 1000


def test_slots_are_filled_with_the_right_article():
    assert fill_in("I saw a {s} and {p}.", "owl", "") == "I saw an owl and owls."
    assert fill_in("A {s} flies.", "owl", "") == "An owl flies."


def test_answers_turn_the_users_words_around():
    assert turned("shave my head myself, mylord") == "shave your head yourself, mylord"


def test_hotslot_blocks_have_ten_ways_to_ask(handwritten):
    assert len(handwritten.hotslot) >= 90
    assert all(len(block.questions) >= 10 for block in handwritten.hotslot)
    assert all(len(block.questions) + sum(map(len, block.more)) >= 50 for block in handwritten.hotslot)


def test_training_never_asks_a_held_out_hotslot_question(handwritten):
    rng = random.Random(0)
    held_out = {normalised(block.question(rng, held_out=True)) for block in handwritten.hotslot for _ in range(60)}
    elsewhere = {
        normalised(question)
        for block in every_block(handwritten)
        for question in block.questions
        if not block.is_examined
    }
    trained = {normalised(block.question(rng)) for block in handwritten.hotslot for _ in range(200)}
    trained |= {normalised(text) for block in handwritten.hotslot for way in block.more for text in way}
    composed = {normalised(question) for question in handwritten.composer.questions()}
    assert len(held_out) > 150
    assert not held_out & (elsewhere | trained | composed)


def test_more_ways_to_ask_are_trained_and_never_examined(tmp_path):
    path = tmp_path / "blocks.txt"
    path.write_text(
        "? a1 | a2 | a3 | a4 | what is left\n+? b [one/two] | what is the left\n+= c\n! d\n", encoding="utf-8"
    )
    (block,) = unexamined(read_blocks(path, is_examined=True))
    assert block.examined == ["what is left"]
    assert block.more[0] == ("b one", "b two")
    assert "what is c" in block.more[1]
    rng = random.Random(0)
    assert {"a1", "b one", "b two", "c"} <= {block.question(rng) for _ in range(400)}
    assert {block.question(rng, held_out=True) for _ in range(40)} == {"what is left"}
    assert not any("left" in way for ways in block.more for way in ways)


def test_recall_has_fourteen_kinds_with_ten_phrasings():
    assert len(KINDS) >= 14
    assert {kind.name for kind in KINDS} == set(DRAWS)
    for kind in KINDS:
        assert min(len(kind.told.split(" | ")), len(kind.asked.split(" | "))) >= 10, kind.name


def test_recall_answers_have_the_key():
    for seed in range(300):
        chat, keys = recall_chat(fill(seed), TALK, between=6)
        answers = [turn.content for turn in chat.turns if turn.role == "assistant"][-len(keys) :]
        assert all(key in answer for key, answer in zip(keys, answers, strict=True))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_recall_evaluates_with_its_own_values_and_phrasings(kind):
    training = [kind.fact(fill(seed)) for seed in range(300)]
    evaluation = [kind.fact(fill(seed, held_out=True)) for seed in range(300)]
    if kind.name not in ("name", "home", "pet", "relative"):
        assert not {fact.key for fact in training} & {fact.key for fact in evaluation}
    for parts in (kind.told.split(" | "), kind.asked.split(" | ")):
        trained = {fill(seed).phrasing(parts) for seed in range(300)}
        assert not trained & {fill(seed, held_out=True).phrasing(parts) for seed in range(300)}


@pytest.mark.parametrize(
    "stage",
    [corrected, corrected_twice, one_of_two_corrected, beside_others, owned, in_passing],
    ids=lambda stage: stage.__name__,
)
def test_a_staged_fact_is_told_with_its_value(stage):
    for seed in range(200):
        turns, facts = stage(fill(seed), TALK)
        said = " ".join(turn.content for turn in turns if turn.role == "user").lower()
        assert facts
        assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
        for fact in facts:
            is_misspelled = fact.key.lower() not in said
            assert not is_misspelled or not any(c.isdigit() or c.isupper() for c in fact.key), (fact.key, said)
            assert all(fact.asked), fact


def test_things_of_one_kind_are_asked_for_by_whose_they_are():
    for seed in range(100):
        for fact in owned(fill(seed), TALK)[1]:
            assert fact.asked
            assert all(fact.owner in text for text in (*fact.asked, *fact.framed, *fact.more_asked))


def test_a_corrected_fact_is_answered_with_the_new_value():
    for seed in range(200):
        turns, (right,) = corrected(fill(seed), TALK)
        assert right.key in turns[-1].content
        assert right.key not in turns[1].content


def test_the_newest_of_three_values_holds():
    for seed in range(100):
        turns, (right,) = corrected_twice(fill(seed), TALK)
        told = [turn.content for turn in turns if turn.role == "assistant" and right.key in turn.content]
        assert told
        assert right.key not in turns[1].content


def test_there_are_sixty_more_facts_each_told_and_asked_in_many_ways():
    assert len(MORE_KINDS) >= 60
    assert not {kind.name for kind in MORE_KINDS} & {kind.name for kind in KINDS}
    for kind in MORE_KINDS:
        fact = kind.fact(fill(1))
        assert len({*fact.told, *fact.more_told}) >= 4, kind.name
        assert len({*fact.asked, *fact.framed}) >= 4, kind.name
        assert kind.phrases or kind.name in ("tonight", "resolution"), kind.name
        assert all(fact.key in text for text in (*fact.told, *fact.more_told, *fact.answers)), kind.name
        assert not any(fact.key in text.split() for text in fact.asked), kind.name
        assert not re.search(r"[{}|]", " ".join((*fact.told, *fact.more_told, *fact.asked, *fact.framed)))


def test_more_facts_are_for_training_only():
    told = {text for kind in MORE_KINDS for text in kind.told.replace("{v}", "").split(" | ")}
    held_out = [recall_chat(fill(seed, held_out=True), TALK, between=1)[0] for seed in range(150)]
    trained = [recall_chat(fill(seed), TALK, between=1)[0] for seed in range(150)]
    starts = tuple(text.strip() for text in told if len(text.strip()) > 12)
    count = [
        sum(turn.content.startswith(starts) for chat in chats for turn in chat.turns) for chats in (held_out, trained)
    ]
    assert count[0] == 0 < count[1]


def test_a_value_is_told_letter_by_letter():
    for seed, kind in enumerate((*KINDS, *MORE_KINDS) * 12):
        fact = kind.fact(fill(seed))
        said = telling(fill(seed), fact)[0].content
        assert fact.key in said or fact.key[0].upper() in "".join((*fact.told, *fact.more_told)), (fact.key, said)


def test_chatter_around_a_fact_names_another_value():
    seen = 0
    for seed in range(300):
        fact = KINDS[0].fact(fill(seed))
        said = with_chatter(fill(seed), fact, f"my name is {fact.key}")
        assert said.count(fact.key) == 1
        assert not re.search(r"\{\w+\}", said)
        seen += len(set(re.findall(r"\b[A-Z]\w+", said))) > 2
    assert seen > 25


def test_staged_chats_answer_with_their_keys():
    for seed in range(200):
        chat, keys = staged_chat(fill(seed), TALK, between=3)
        answers = [turn.content for turn in chat.turns if turn.role == "assistant"][-len(keys) :]
        assert all(key in answer for key, answer in zip(keys, answers, strict=True))


def test_evaluation_tells_and_asks_only_in_its_own_ways():
    for kind in (*KINDS, *OTHERS):
        fact = kind.fact(fill(3, held_out=True))
        assert not fact.more_told + fact.more_asked
        usual = [text.format(v="x", V="X", a="x", o="o", O="o") for text in kind.told.split(" | ")]
        examined = {normalised(text) for text in fill(0, held_out=True).own_phrasings(usual)}
        more = {normalised(text.format(v="x", V="X", a="x", o="o", O="o")) for way in kind.more_told for text in way}
        assert not examined & more, kind.name
    chats = [recall_chat(fill(seed, held_out=True), TALK, between=1)[0] for seed in range(150)]
    kept = "|".join(
        text.split("{")[0].strip() for text in ("correction: {t}", "scratch that, {t}", "i mixed that up, {t}")
    )
    assert not any(re.search(kept, turn.content, re.I) for chat in chats for turn in chat.turns)


def test_names_told_in_evaluation_are_never_told_in_training():
    kind = next(kind for kind in KINDS if kind.name == "name")
    training = {kind.fact(fill(seed)).key for seed in range(2000)}
    assert not training & {kind.fact(fill(seed, held_out=True)).key for seed in range(500)}


def test_what_was_not_told_is_not_invented():
    answer = untold_chat(fill(3), TALK).turns[-1].content
    assert "told" in answer or "tell me" in answer


def test_what_was_told_of_another_person_is_not_taken_for_the_user():
    for seed in range(60):
        chat = untold_chat(fill(seed), TALK)
        assert "told" in chat.turns[-1].content or "tell me" in chat.turns[-1].content
        one, other = of_two_people(fill(seed))
        assert one.owner != other.owner


def test_a_fact_is_told_before_a_chat_and_asked_after_it():
    inner = recall_chat(fill(1), TALK, between=2)[0]
    for seed in range(40):
        chat = around(fill(seed), inner)
        longer = around(fill(seed), inner, TALK)
        assert len(longer.turns) >= len(inner.turns) + 4
        num_facts = (len(chat.turns) - len(inner.turns)) // 4
        assert num_facts in (1, 2)
        assert chat.turns[2 * num_facts : -2 * num_facts] == inner.turns


def test_sums_are_right_and_end_with_the_result():
    for seed in range(500):
        drawn, _, answer = asked_and_answered(fill(seed))
        assert re.findall(r"\d+", answer)[-1] == str(drawn.result)
        for step in re.findall(r"(\d+ [+*-] \d+) = (\d+)", steps_of(drawn)):
            assert eval(step[0]) == int(step[1])
        assert re.findall(r"\d+", steps_of(drawn))[-1] == str(drawn.result)


def test_steps_go_over_tens_and_ones():
    assert steps_of(Sum(17, "+", 25)) == "17 + 25: 10 + 20 = 30, 7 + 5 = 12, 30 + 12 = 42."
    assert steps_of(Sum(62, "-", 26)) == "62 - 26: 62 - 20 = 42, 42 - 6 = 36."


def test_sums_of_evaluation_are_held_out():
    assert all(small_sum(random.Random(seed), held_out=True).is_held_out for seed in range(50))
    assert not any(small_sum(random.Random(seed)).is_held_out for seed in range(200))


def test_thinking_gives_every_answer_a_reason_and_none_without():
    chat = sum_chat(fill(1), thinking=True)
    assert all(turn.reasoning for turn in chat.turns if turn.role == "assistant")
    assert not any(turn.reasoning for turn in sum_chat(fill(1)).turns)
    thought = with_thoughts(random.Random(0), recall_chat(fill(5), TALK, 1)[0])
    assert all(turn.reasoning for turn in thought.turns if turn.role == "assistant")


def test_a_document_reason_has_the_sentence():
    answer = Turn("assistant", 'The document says: "The cafe opens at nine."')
    assert "The cafe opens at nine." in reason_for(random.Random(0), answer, Turn("user", "When?"), "document")


def test_a_summary_is_the_sentence_that_shares_most():
    sentences = [
        "It was late.",
        "The old mill by the river grinds wheat for the village bakery.",
        "The bakery opens at six.",
        "The river froze in winter.",
    ]
    assert summary_of(sentences) == sentences[1]
    assert condensed(
        "However, the mill, which was built long ago by three brothers from the far north, still turns.", 8
    ) == ("The mill, which was built long ago by three brothers from the far north, still turns.")
    assert summary_chat(fill(2), sentences).turns[1].content.endswith(sentences[1])


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("How do I change a light bulb?", "Change a light bulb"),
        ("hi, can you tell me a story about a penguin", "Story about a penguin"),
        ("what is the capital of France", "Capital of France"),
        ("I need your help. I can't sleep on the train.", "I can't sleep on the train"),
        ("Anyway, read docs/a_b.txt.", "Read docs/a_b.txt"),
        ("Please run `git status`.", "Run git status"),
        ("...", ""),
    ],
)
def test_titles(question, title):
    assert title_of(question) == title


@pytest.mark.parametrize("question", ["who are you", "?", "So what.", "hotslot, what's that"])
def test_a_question_that_names_nothing_is_titled_by_its_answer(question):
    for seed in range(30):
        chat = title_chat(fill(seed), question, "The slots hold experts on the card.")
        assert chat.turns[-1].content == "Slots hold experts on the card"
        assert "The slots hold experts" in chat.turns[0].content


def test_titles_are_usable_whatever_is_said(handwritten):
    rng = random.Random(7)
    for seed in range(400):
        question, answer = handwritten.exchange(rng)
        title = title_chat(fill(seed), question, answer).turns[-1].content
        assert is_title(f"{question} {answer}")(title) or title == "Short chat", (question, title)


def test_more_ways_to_ask_for_a_title_are_for_training_only():
    exchange = ("How do I fix a bike?", "With the right tools.")
    chats = [[title_chat(fill(seed, held), *exchange).turns[0].content for seed in range(60)] for held in (True, False)]
    starts = tuple(text.split("\n")[0] for text in MORE_ASKED if text[0] != "{" and "\n\n" in text)
    more = [sum(asked.startswith(starts) for asked in part) for part in chats]
    assert more[0] == 0 < more[1]


def test_follow_ups_answer_from_the_turn_before():
    seen = {}
    for seed in range(400):
        said, reply = follow_up(random.Random(seed), "How so?", "Go to bed early. Read a book.", [], False, True)
        seen[said] = reply
    assert all(seen[said] == "Go to bed early. Read a book." for said in REPEAT if said in seen)
    assert all("How so?" in seen[said] for said in ASKED if said in seen)
    assert all(seen[said] == "Go to bed early." for said in SHORTER if said in seen)
    assert all(any(said in seen for said in group) for group in (REPEAT, ASKED, SHORTER))


def test_blocks_with_frames_ask_whole_questions_half_of_the_time():
    block = read_blocks(TEXT / "tasks.txt")[0]
    rng = random.Random(0)
    whole = sum(block.question(rng) in block.questions[: block.num_whole] for _ in range(1000))
    assert 400 < whole < 700
    assert set(TOPICS) == {path.stem for path in TEXT.glob("*.txt")} & set(TOPICS)


def test_synonyms_leave_names_and_numbers():
    for seed in range(50):
        said = with_synonyms(random.Random(seed), "Why did Anna Kelo buy 12 big houses in Rome?")
        assert said.startswith("Why did Anna Kelo ")
        assert said.endswith(" in Rome?")
        assert " 12 " in said
    assert with_synonyms(random.Random(0), "{n}") == "{n}"


def test_only_training_draws_from_the_lexicon():
    lexicon = ("zymurgy", "quokka")
    training = [Fillers(random.Random(seed), ("lamp",), lexicon=lexicon).rare("lamp") for seed in range(100)]
    evaluation = [Fillers(random.Random(seed), ("lamp",), True, lexicon=lexicon).rare("lamp") for seed in range(100)]
    assert {*lexicon, "lamp"} == set(training)
    assert set(evaluation) == {"lamp"}


def test_frames_ask_in_no_way_that_evaluation_may_ask():
    for kind in KINDS:
        fact = kind.fact(fill(1))
        assert len(fact.framed) > 40, kind.name
        assert not set(fact.framed) & set(fact.asked)
