"""The everyday prompts are asked by people who judge the model, so no training text may ask one of them."""

import random
import re
import sys
from pathlib import Path

import pytest

from tests.demo_evaluation.items import everyday_prompts

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.handwritten import Handwritten, normalised  # noqa: E402
from demo.data.requests import read_requests  # noqa: E402

TEXT = ROOT / "scripts" / "demo" / "text"
JUDGED_TOO = {"preview.txt"}  # asked of the trained model, never part of its training
PROMPTS = frozenset(map(normalised, everyday_prompts()))


@pytest.fixture(scope="module")
def handwritten() -> Handwritten:
    return Handwritten(TEXT)


def asked_in(line: str) -> list[str]:
    """What a line of the texts may ask: all of it, and its parts without their marks."""
    parts = [part for half in line.split(" => ") for part in half.split(" | ")]
    return [line, *(re.sub(r"^(\W|\d|-)+ ", "", part) for part in parts)]


def held_out(questions) -> list[str]:
    return sorted({question for question in questions if normalised(question) in PROMPTS})


def test_no_line_of_the_texts_is_a_judged_prompt():
    for path in sorted(TEXT.glob("*.txt")):
        lines = path.read_text(encoding="utf-8").splitlines() if path.name not in JUDGED_TOO else []
        assert held_out(question for line in lines for question in asked_in(line)) == [], path.name


def test_no_question_made_of_the_texts_is_a_judged_prompt(handwritten):
    assert held_out(handwritten.fixed) == []
    assert held_out(handwritten.composer.questions()) == []
    assert held_out(request.asked for request in read_requests(TEXT / "requests.txt")) == []


def test_no_question_as_it_is_drawn_is_a_judged_prompt(handwritten):
    rng = random.Random(3)
    assert held_out(handwritten.exchange(rng)[0] for _ in range(15_000)) == []


@pytest.mark.parametrize("prompt", ["Why is the sky blue?", "hi, WHY is the sky blue", "why's the sky blue"])
def test_case_marks_and_a_greeting_do_not_hide_a_prompt(prompt):
    assert bool(held_out([prompt])) == (not prompt.startswith("why's"))
