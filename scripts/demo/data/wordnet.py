"""Owns the reading of WordNet: common nouns with category, frequency and first gloss."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

CATEGORIES = {
    "04": "act", "05": "animal", "06": "artifact", "07": "attribute", "08": "body", "09": "cognition",
    "10": "communication", "11": "event", "12": "feeling", "13": "food", "14": "group", "15": "location",
    "17": "object", "18": "person", "19": "phenomenon", "20": "plant", "22": "process", "26": "state",
    "27": "substance", "28": "time",
}  # fmt: skip


@dataclass(frozen=True)
class Noun:
    word: str
    category: str
    uses: int
    gloss: str


def read_nouns(folder: Path, min_uses: int = 2) -> list[Noun]:
    """Nouns seen at least `min_uses` times in WordNet's tagged texts, most frequent first."""
    uses: Counter[str] = Counter()
    for line in (folder / "cntlist.rev").read_text(encoding="utf-8").splitlines():
        key, _, count = line.split()
        lemma, sense = key.split("%")
        if sense.startswith("1:"):
            uses[lemma] += int(count)
    glosses = read_glosses(folder / "data.noun")
    nouns = []
    for line in (folder / "index.noun").read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            continue
        fields = line.split()
        word = fields[0]
        category, gloss = glosses[fields[4 + int(fields[3]) + 2]]
        is_plain = re.fullmatch(r"[a-z]{3,14}(_[a-z]{3,10})?", word)
        if is_plain and category in CATEGORIES and uses[word] >= min_uses:
            nouns.append(Noun(word.replace("_", " "), CATEGORIES[category], uses[word], gloss))
    return sorted(nouns, key=lambda noun: -noun.uses)


def read_glosses(path: Path) -> dict[str, tuple[str, str]]:
    glosses = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            head, gloss = line.split(" | ", 1)
            offset, category = head.split()[:2]
            glosses[offset] = (category, gloss.strip())
    return glosses


def short_gloss(gloss: str) -> str:
    gloss = gloss.split('; "')[0].split(";")[0]
    return re.sub(r"\s+", " ", re.sub(r"\([^)]*\)", "", gloss)).strip(" .,")
