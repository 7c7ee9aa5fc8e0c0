"""Owns other words for a word: reading text/synonyms.txt, WordNet's synsets of common words by their first sense."""

import random
import re
from pathlib import Path

SHARE = 0.5  # of the words that have other words


def read_synonyms(path: Path) -> dict[str, tuple[str, ...]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {word: tuple(others.split()) for word, others in (line.split(": ") for line in lines)}


SYNONYMS = read_synonyms(Path(__file__).parents[1] / "text" / "synonyms.txt")


def with_synonyms(rng: random.Random, text: str) -> str:
    """Some of its plain words, and regular plurals, in other words."""

    def other(match: re.Match[str]) -> str:
        word = match[0]
        single = word if word in SYNONYMS else word.removesuffix("s")
        if single not in SYNONYMS or rng.random() > SHARE:
            return word
        return rng.choice(SYNONYMS[single]) + word[len(single) :]

    return re.sub(r"\b[a-z]{3,}\b", other, text)
