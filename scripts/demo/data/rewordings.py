"""Owns questions in other words, written by the teacher: their files, and drawing them in place of the originals."""

import json
import lzma
import random
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

SHARE = 0.45
HELD_OUT = 20  # Of so many originals, one keeps its other wordings for evaluation.


def is_held_out(original: str) -> bool:
    return crc32(original.lower().encode()) % HELD_OUT == 0


class Rewordings:
    """Original -> its other wordings; without any, every question stays as it is."""

    def __init__(self, wordings: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.wordings = dict(wordings or {})

    def draw(self, rng: random.Random, original: str, held_out: bool = False) -> str:
        """The original or another wording of it; training and evaluation draw those of different originals."""
        others = self.wordings.get(original)
        if not others or is_held_out(original) != held_out or rng.random() >= SHARE:
            return original
        return rng.choice(others)

    def held_out(self, original: str) -> tuple[str, ...]:
        """What training never draws."""
        return self.wordings.get(original, ()) if is_held_out(original) else ()


AS_WRITTEN = Rewordings()


def write_rewordings(wordings: Mapping[str, tuple[str, ...]], path: Path) -> None:
    lines = "\n".join(json.dumps(pair, ensure_ascii=False) for pair in sorted(wordings.items()))
    path.write_bytes(lzma.compress(lines.encode(), preset=3))


def read_rewordings(folder: Path) -> Rewordings:
    wordings: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.glob("paraphrases-*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            original, others = json.loads(line)
            wordings[original] = (*wordings.get(original, ()), *others)
    return Rewordings(wordings)
