"""Questions in other words: what may stand for a question, and the generators that draw it; the teacher is not here."""

import random
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.fact_kinds import KINDS, MORE_KINDS  # noqa: E402
from demo.data.handwritten import Handwritten  # noqa: E402
from demo.data.known_questions import KnownQuestions, Original, best_wordings, kind_of  # noqa: E402
from demo.data.memory import recall_chat, untold_chat  # noqa: E402
from demo.data.requests import kept_values, read_requests, request_chat  # noqa: E402
from demo.data.rewordings import SHARE, Rewordings, is_held_out, read_rewordings  # noqa: E402
from demo.data.tool_uses import Uses  # noqa: E402
from demo.data.words import Fillers  # noqa: E402
from demo.paraphrases import SHOTS, Reader, chat_turn, originals, save  # noqa: E402

TEXT = ROOT / "scripts" / "demo" / "text"
REQUESTS = read_requests(TEXT / "requests.txt")
MARK = "{so it was put}"


@pytest.fixture(scope="module")
def known() -> KnownQuestions:
    return KnownQuestions(originals(TEXT))


def marked(questions) -> Rewordings:
    return Rewordings(dict.fromkeys(questions, (MARK,)))


def fill(seed: int, rewordings: Rewordings, held_out: bool = False) -> Fillers:
    return Fillers(random.Random(seed), ("lamp", "rope", "book"), held_out, rewordings)


ACCEPTED = (
    ("what do the arrow keys do", "What happens when I press the arrow keys?"),
    ("how do i stop procrastinating", "How can I stop putting things off?"),
    ("what does f5 do", "What happens if I press F5?"),
    ("what is the capital of France", "Which city is France's capital city?"),
    ("is gguf supported", "Are GGUF files supported?"),
    ("what is photosynthesis", "Can you tell me how photosynthesis works?"),
    ("which model formats are supported", "Which formats of models can Hotslot read?"),
    ("what is my sister called", "What's the name of my sister?"),
    ("are you a robot", "Do you happen to be a robot?"),
    ("i feel so tired today", "I am feeling really tired today."),
    ("Which columns does data/customers.csv have?", "What are the columns in data/customers.csv?"),
)
REFUSED = (
    ("why is overlap off", "How is overlap turned off?", "nearer to another"),
    ("what does f5 do", "What does F4 do?", "known"),
    ("what does f5 do", "What happens when F6 is pressed?", "name"),
    ("what is the capital of France", "What is the capital city of the country?", "name"),
    ("what is the capital of France", "Which city is the capital of Germany?", "known"),
    ("how do i cook rice", "How would I cook some pasta?", "argument"),
    ("why is overlap off", "Why is my overlap off?", "person"),
    ("why is overlap off", "Why is the overlap on?", "flipped"),
    ("does overlap change the answer", "Does overlap not change the answer?", "flipped"),
    ("what is photosynthesis", "What Is Photosynthesis?!", "same"),
    ("what is photosynthesis", "Photosynthesis makes food from light.", "kind"),
    ("what is photosynthesis", "What is photosynthesis in 3 steps?", "numbers"),
    ("what is photosynthesis", "What is photosynthesis, asked the chatbot?", "persona"),
    ("what is photosynthesis", "What is photosynth\u00e8sis?", "form"),
    ("what is photosynthesis", "Why do plants need a lot of light?", "content lost"),
    ("open todo.md", "todo.md!", "form"),
    ("tell me a joke", "I'm sorry, I know no joke.", "reply"),
    ("i feel so tired today", "You feel tired today.", "person"),
    ("Which columns does data/customers.csv have?", "What columns are in customers.csv?", "argument"),
)


@pytest.mark.parametrize(("original", "text"), ACCEPTED)
def test_other_wording_is_accepted(known, original, text):
    assert original in known.groups
    assert known.fault(original, text) is None


@pytest.mark.parametrize(("original", "text", "reason"), REFUSED)
def test_what_is_no_other_wording_is_refused_by_name(known, original, text, reason):
    assert original in known.groups
    assert known.fault(original, text) == reason


def test_what_the_teacher_is_shown_keeps_kind_and_form():
    for original, text in SHOTS:
        assert kind_of(original) == kind_of(text), original
        assert text.isascii()


def test_an_answer_is_read_as_the_original_is_typed(known):
    reader = Reader(known)

    def read(original: str, answer: str):
        return reader(f"{chat_turn(original)}{answer}<|im_end|>")

    asked = "what is the capital of France"
    assert read(asked, "Which city is France's capital city?") == (asked, "which city is France's capital city")
    request = "Which columns does data/customers.csv have?"
    assert read(request, "What are the columns in data/customers.csv?")[1].startswith("What are")
    assert read(asked, "Paris is the capital of France.") is None
    assert read("what nobody has ever asked here", "What has nobody asked here?") is None
    assert reader(chat_turn(asked)) is None


def test_recall_is_asked_for_every_owner(known):
    for kind in (*KINDS, *MORE_KINDS):
        for owner in kind.owners:
            assert set(kind.questions(owner)) <= set(known.groups)


def test_every_request_is_known_with_its_arguments(known):
    assert all(set(kept_values(request)) <= known.kept[request.asked] for request in REQUESTS)
    assert sum(bool(kept_values(request)) for request in REQUESTS) > 300


def test_the_likeliest_wordings_are_kept_whatever_the_order():
    known = KnownQuestions([Original("open a door", 0), Original("unlock a door", 0), Original("buy a door", 1)])
    scored = [(("open a door", f"wording {number}"), -number / 10) for number in range(10)]
    scored += scored[:1] * 50
    scored += [(("open a door", "both"), -0.1), (("buy a door", "Both!"), -0.2)]
    scored += [(("open a door", "shared"), -0.3), (("unlock a door", "shared"), -0.2), (("buy a door", "last"), -9.0)]
    best = best_wordings(scored, known)
    assert best["open a door"] == tuple(f"wording {number}" for number in range(6))
    assert best["unlock a door"] == ("shared",)
    assert "buy a door" not in best
    assert best_wordings(random.Random(1).sample(scored, len(scored)), known) == best
    assert best_wordings([], known) == {}


def test_files_give_back_what_was_saved_last(tmp_path):
    save({f"question {number}": ("old",) for number in range(20_001)}, tmp_path)
    assert len(read_rewordings(tmp_path).wordings) == 20_001
    wordings = {"what is rain": ("why does it rain", "what makes rain"), "hi": ("hello",)}
    save(wordings, tmp_path)
    assert read_rewordings(tmp_path).wordings == wordings
    assert [path.name for path in tmp_path.iterdir()] == ["paraphrases-0.jsonl.xz"]


def test_training_and_evaluation_draw_wordings_of_different_originals():
    questions = [f"question {number}" for number in range(4000)]
    book, rng = marked(questions), random.Random(0)
    trained = {question for question in questions for _ in range(20) if book.draw(rng, question) == MARK}
    asked = {question for question in questions for _ in range(20) if book.draw(rng, question, held_out=True) == MARK}
    assert trained.isdisjoint(asked)
    assert trained | asked == set(questions)
    assert 0.04 < len(asked) / len(questions) < 0.06
    draws = [book.draw(rng, next(iter(trained))) == MARK for _ in range(4000)]
    assert abs(sum(draws) / len(draws) - SHARE) < 0.03
    assert book.draw(rng, "unknown") == "unknown"


def test_hand_written_chats_ask_in_other_words_but_for_held_out_originals():
    plain = Handwritten(TEXT)
    book = Rewordings({q: (f"{MARK} {q}",) for topic in plain.topics for b in topic for q in b.questions})
    texts = Handwritten(TEXT, book)
    rng = random.Random(5)
    asked = [texts.asked(rng, texts.block(rng)) for _ in range(10_000)]
    share = sum("so it was put" in question for question in asked) / len(asked)
    assert 0.3 < share < 0.46
    chats = [texts.chat(rng) for _ in range(100)]
    assert any("so it was put" in turn.content for chat in chats for turn in chat.turns)
    held_out = [block for topic in plain.topics for block in topic if all(map(is_held_out, block.questions))]
    assert held_out
    assert not any("so it was put" in texts.asked(rng, block) for block in held_out for _ in range(5))


def test_composed_questions_are_asked_in_other_words_about_the_same_word(known):
    plain = Handwritten(TEXT)
    book = marked(plain.composer.questions())
    texts, rng = Handwritten(TEXT, book), random.Random(2)
    asked = [texts.composed(rng)[0] for _ in range(500)]
    assert 100 < sum("so it was put" in question for question in asked) < 240
    word, questions = next(group for group in plain.composer.groups() if group[0] in known.kept[group[1][0]])
    assert known.fault(questions[0], questions[0].replace(word, "something")) == "argument"


def test_evaluation_asks_held_out_wordings_with_their_answers():
    plain = Handwritten(TEXT)
    assert plain.held_out_wordings() == []
    block = next(b for b in plain.hotslot if any(map(is_held_out, b.questions)))
    book = marked(block.questions)
    held_out = Handwritten(TEXT, book).held_out_wordings()
    assert held_out
    assert set(held_out) == {(MARK, block.answers)}
    assert len(held_out) < len(block.questions)


def test_recall_asks_in_other_words():
    kinds = (*KINDS, *MORE_KINDS)
    book = marked(question for kind in kinds for owner in kind.owners for question in kind.questions(owner))
    talk = [recall_chat(fill(0, book), [], 0)[0].turns[:2]]
    chats = [recall_chat(fill(seed, book), talk, 1)[0] for seed in range(100)]
    chats += [untold_chat(fill(seed, book), talk) for seed in range(100)]
    last = ["so it was put" in chat.turns[-2].content for chat in chats]
    assert 20 < sum(last[:100]) < 70
    assert 20 < sum(last[100:]) < 70


def test_requests_are_made_in_other_words_with_their_calls():
    book = Rewordings({request.asked: (f"{MARK} {number}",) for number, request in enumerate(REQUESTS)})
    chats = [request_chat(fill(seed, book), REQUESTS, Uses()) for seed in range(300)]
    found = [(re.search(r"so it was put} (\d+)", chat.turns[0].content), chat.turns[1]) for chat in chats]
    reworded = [(REQUESTS[int(match[1])], reply) for match, reply in found if match]
    assert 80 < len(reworded) < 190
    for request, reply in reworded:
        assert reply.calls == request.calls
        assert request.calls or reply.content == request.answer


def test_chats_are_the_same_for_a_seed_and_as_before_without_wordings():
    plain = Handwritten(TEXT)
    book = marked(question for topic in plain.topics for block in topic for question in block.questions)
    first, again = (Handwritten(TEXT, book).chat(random.Random(3)) for _ in range(2))
    assert first == again
    assert Handwritten(TEXT, Rewordings({"unknown": (MARK,)})).chat(random.Random(4)) == plain.chat(random.Random(4))
