"""Odd strings: of every shape, none of them evaluation's, and each comes back exactly."""

import ast
import random
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.lookups import repeated  # noqa: E402
from demo.data.strings import ODD, digits, expression, file_name, folder, letters, odd, path, query  # noqa: E402
from demo.data.tool_words import Slots, Vocabulary, evaluated  # noqa: E402
from demo.data.words import FIRST_NAMES, Fillers, halves  # noqa: E402

WORDS = ("abacus", "lantern", "marzipan", "quilt")
VOCABULARY = Vocabulary(ROOT / "scripts" / "demo" / "text" / "tools_words.txt")


def filler(seed: int, held_out: bool = False) -> Fillers:
    return Fillers(random.Random(seed), ("lamp", "chair", "spoon", "boat"), held_out, lexicon=WORDS)


def drawn(draw, count: int = 600) -> list[str]:
    return [draw(filler(seed)) for seed in range(count)]


def test_paths_have_one_to_six_parts_and_names_of_every_sign():
    paths = drawn(path)
    assert {len(re.findall(r"[^/]+", text)) for text in paths} >= {1, 2, 3, 4, 5, 6}
    for sign in "-_. ":
        assert sum(sign in text for text in drawn(file_name)) > 20, sign
    assert sum(not text.isascii() for text in paths) > 60
    assert not any("//" in text for text in (*paths, *drawn(folder)))
    assert len(set(paths)) == len(paths)


def test_queries_are_of_several_words_or_signs_and_of_both_cases():
    queries = drawn(query)
    assert sum(" " in text for text in queries) > 100
    assert sum(any(sign in text for sign in "()[]@#$&*") for text in queries) > 60
    assert sum(text.lower() != text != text.upper() for text in queries) > 100
    assert not any("\n" in text or text != text.strip() for text in queries)


def test_expressions_are_worked_out_whatever_they_have():
    texts = drawn(expression)
    for sign in ("(", "**", "%", "//", "sqrt", "."):
        assert sum(sign in text for text in texts) > 5, sign
    for seed, text in enumerate(texts):
        slots = Slots(VOCABULARY, filler(seed), {"expression": text})
        assert re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?", slots.value("result")), text


@pytest.mark.parametrize(("text", "value"), [("7 // 2", 3), ("2 ** 10 - 7 % 4", 1021), ("sqrt(16) + abs(-3)", 7)])
def test_the_calculators_operators_mean_what_they_mean_there(text, value):
    assert evaluated(ast.parse(text, mode="eval").body) == value


def test_made_words_and_numbers_are_not_those_of_evaluation():
    assert all(int(digits(filler(seed), 3)) % 7 for seed in range(300))
    assert all(sum(map(ord, letters(filler(seed)))) % 5 for seed in range(300))
    held_out = set(halves(tuple(FIRST_NAMES))[1])
    assert not held_out.intersection(part for text in drawn(odd) for part in re.findall(r"\w+", text))


def test_evaluation_draws_none_of_them():
    for name in ODD:
        texts = {VOCABULARY.draw(filler(seed, held_out=True), name) for seed in range(200)}
        assert all(text.isascii() for text in texts), name


def test_what_is_to_be_repeated_stands_in_the_request():
    for seed in range(500):
        asked, answer = repeated(filler(seed))
        letters_said = answer.replace("-", "")
        whole = answer in asked or letters_said in asked.replace("-", "")
        parts = re.split(r"[\s,()\"]+", answer)
        assert whole or all(part in asked for part in parts) or asked.startswith("Join"), (asked, answer)
