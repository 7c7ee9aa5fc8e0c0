"""Owns documents as the application shows them to the model: files between fences, with marks of pages or lines."""

import random
from dataclasses import dataclass

from demo.data.words import Fillers
from demo.listing import listed

CITATION_REQUEST = "Where you use a document, quote it and add the mark of the place, such as {mark}."
CITED_SHARE, HEADED_SHARE, TWO_FILES_SHARE = 0.6, 0.3, 0.3
PAGED, LINED = listed("pdf pdf docx"), listed("txt md html txt md rst log csv")
BLOCK_CHARACTERS = 600


@dataclass(frozen=True)
class Filed:
    """The text before the question, and the mark of each sentence."""

    text: str
    marks: dict[str, str]


def filed(fill: Fillers, parts: list[list[str]]) -> Filed:
    """The parts in one file, or in two."""
    rng = fill.rng
    half = rng.randrange(1, len(parts)) if len(parts) > 1 and rng.random() < TWO_FILES_SHARE else len(parts)
    files, marks, examples = [], {}, set()
    for group in filter(None, (parts[:half], parts[half:])):
        is_paged = rng.random() < 0.5
        blocks = [block for part in group for block in paragraphs(rng, part)]
        of_file, lines = paged(rng, blocks) if is_paged else lined(fill, blocks)
        marks |= of_file
        examples.add("[p.3]" if is_paged else "[line 12]")
        files.append(fenced(fill, lines, PAGED if is_paged else LINED))
    asking = CITATION_REQUEST.format(mark=" or ".join(sorted(examples, reverse=True)))
    return Filed("\n\n".join([*files, *([asking] if rng.random() < CITED_SHARE else [])]), marks)


def fenced(fill: Fillers, body: str, endings: list[str]) -> str:
    rng = fill.rng
    words = [fill.rare(fill.rng.choice(fill.things)) for _ in range(rng.choice((1, 1, 2)))]
    name = rng.choice(("-", "_", " ", "")).join(words) + rng.choice(("", "", str(fill.integer(1, 99)), fill.year()))
    label = " (passages)" if rng.random() < 0.15 else ""
    return f"File {name}.{rng.choice(endings)}{label}:\n```\n{body}\n```"


def paragraphs(rng: random.Random, sentences: list[str]) -> list[list[str]]:
    size = rng.choice((1, 2, 3, 4, 6, 99))
    return [sentences[first : first + size] for first in range(0, len(sentences), size)]


def paged(rng: random.Random, blocks: list[list[str]]) -> tuple[dict[str, str], str]:
    """Several blocks may stand on one page; short paragraphs share a mark."""
    number, marks, shown = rng.choice((1, 1, 1, rng.randint(2, 300))), {}, []
    per_page, first = rng.choice((1, 1, 2, 4)), 0
    while first < len(blocks):
        packed = [blocks[first]]
        while first + len(packed) < len(blocks) and rng.random() < 0.3:
            packed.append(blocks[first + len(packed)])
        first += len(packed)
        marks |= {sentence: f"[p.{number}]" for block in packed for sentence in block}
        shown.append(f"[p.{number}] " + "\n".join(" ".join(block) for block in packed))
        number += 1 if rng.random() < 1 / per_page else 0
    return marks, "\n\n".join(shown)


def lined(fill: Fillers, blocks: list[list[str]]) -> tuple[dict[str, str], str]:
    """Paragraphs by the line where they begin: wrapped ones, blank lines and passages left out make gaps."""
    rng = fill.rng
    number, marks, shown = rng.choice((1, 1, 1, rng.randint(2, 900))), {}, []
    step = rng.choice((1, 2, 2, 4, 9))
    if rng.random() < HEADED_SHARE:
        shown.append(f"[line {number}] # {fill.word()} {fill.thing()}")
        number += rng.choice((1, 2))
    for block in blocks:
        marks |= dict.fromkeys(block, f"[line {number}]")
        shown.append(f"[line {number}] " + " ".join(block))
        number += rng.randint(1, step)
    return marks, "\n".join(shown)
