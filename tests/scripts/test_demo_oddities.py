"""Odd prompts get short answers that do not go on with what was repeated, and no training answer loops."""

import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.handwritten import Handwritten, normalised  # noqa: E402
from demo.data.oddities import odd_chat, read_oddities, repeated, repeated_file  # noqa: E402
from demo.data.words import Fillers  # noqa: E402

TEXT = ROOT / "scripts" / "demo" / "text"
MOST_WORDS = 45
LENGTH = 2048


@pytest.fixture(scope="module")
def handwritten() -> Handwritten:
    return Handwritten(TEXT)


def fill(seed: int) -> Fillers:
    return Fillers(random.Random(seed), ("lamp", "rope", "book"))


def loops(text: str) -> bool:
    """Five words in a row come three times."""
    words = re.findall(r"\w+", text.lower())
    runs = Counter(tuple(words[first : first + 5]) for first in range(len(words) - 4))
    return any(count >= 3 for count in runs.values())


def test_a_loop_is_seen():
    assert loops("it is simple and it is simple and it is simple and it is")
    assert not loops("That is a lot of lamp. What can I do for you?")


@pytest.mark.parametrize("maker", [repeated, repeated_file])
def test_repetition_is_answered_shortly(maker):
    lengths = []
    for seed in range(300):
        asked, answer = maker(fill(seed), LENGTH)
        lengths.append(len(asked.content))
        assert len(answer.content.split()) <= MOST_WORDS
        assert not loops(answer.content)
    assert min(lengths) < 60
    assert max(lengths) > LENGTH


def test_every_kind_of_prompt_has_answers_and_no_slot_is_left(handwritten):
    for odd in read_oddities().values():
        assert len(odd.answers) >= 3
    for seed in range(400):
        turns = odd_chat(fill(seed), handwritten, LENGTH).turns
        assert not [turn for turn in turns if re.search(r"\{[wn]\}", turn.content)]
        answers = [turn for turn in turns if turn.role == "assistant"]
        assert all(turn.content and not loops(turn.content) and not loops(turn.reasoning) for turn in answers)


def test_written_prompts_are_answered_nowhere_else(handwritten):
    prompts = [prompt for odd in read_oddities().values() for prompt in odd.prompts]
    assert not [prompt for prompt in prompts if normalised(prompt) and normalised(prompt) in handwritten.known]


def test_no_hand_written_answer_loops(handwritten):
    answers = [answer for topic in handwritten.topics for block in topic for answer in block.answers]
    answers += [answer for form in handwritten.composer.forms for answer in form.answers]
    assert not [answer for answer in answers if loops(answer)]
