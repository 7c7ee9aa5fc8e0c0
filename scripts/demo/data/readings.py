"""Owns documents written by hand: reading text/readings-*.txt.

Documents are separated by `==`. `# ` and `> ` begin an opening line, `< ` a closing one; then one sentence per line, an
empty line ends a paragraph. `?3 question` is answered by the third sentence, `?- question` by none.
"""

import re
from dataclasses import dataclass
from pathlib import Path

QUESTION = re.compile(r"\?(\d+|-) (.+)")
OPENING, CLOSING = ("# ", "> "), "< "


@dataclass(frozen=True)
class Reading:
    sentences: tuple[str, ...]
    questions: tuple[tuple[str, ...], ...]  # of each sentence
    unanswered: tuple[str, ...]


def read_readings(folder: Path) -> list[Reading]:
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("readings-*.txt"))]
    return [
        read_reading(block.strip()) for text in texts for block in re.split(r"^==$", text, flags=re.M) if block.strip()
    ]


def read_reading(block: str) -> Reading:
    lines = [line for line in block.splitlines() if line]
    sentences = [line for line in lines if not line.startswith(("?", *OPENING, CLOSING))]
    asked: list[list[str]] = [[] for _ in sentences]
    unanswered = []
    for number, question in (match.groups() for match in map(QUESTION.fullmatch, lines) if match):
        (unanswered if number == "-" else asked[int(number) - 1]).append(question)
    return Reading(tuple(sentences), tuple(map(tuple, asked)), tuple(unanswered))
