"""Owns the pack stage: conversations become rows of token ids with a loss class in the upper bits.

Bits 0-12 hold the id, bits 13-15 the loss class. Each document ends with <|endoftext|> and starts at a multiple of
the indexer's compress ratio, so that blocks of the packed row are blocks of the document.
"""

import os
import random
import time
from dataclasses import fields
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from demo.data.conversation import Conversation, render
from demo.data.mixture import Generators, Mix
from demo.data.teacher_text import Chat

LOSS_CLASS = {"none": 0, "light": 1, "full": 2, "double": 3, "heavy": 4}
LOSS_WEIGHTS = (0.0, 0.2, 1.0, 2.0, 5.0)
ID_MASK, CLASS_SHIFT = 0x1FFF, 13
ALIGNMENT = 4
OPEN_ROWS = 16
HELD_OUT_CHATS = 4000
TURN = "<|im_start|>"
VALIDATION_ITEMS = {
    "teacher_rounds": 1200,
    "handwritten": 1200,
    "recall": 600,
    "sums": 1200,
    "documents": 600,
    "long_documents": 32,
    "tools": 400,
}

_state: tuple[Generators, object, int] | None = None


def encode(tokenizer, conversation: Conversation) -> np.ndarray:
    segments = render(conversation)
    fresh = [segment.text for segment in segments if not segment.text.startswith(TURN)]
    ids = iter([encoded.ids for encoded in tokenizer.encode_batch_fast(fresh)])
    parts = []
    for segment in segments:
        known = encode_known(tokenizer, segment.text) if segment.text.startswith(TURN) else next(ids)
        parts.append(np.array(known, dtype=np.uint16) | np.uint16(LOSS_CLASS[segment.loss] << CLASS_SHIFT))
    return np.concatenate(parts)


@lru_cache(maxsize=1024)
def encode_known(tokenizer, text: str) -> list[int]:
    """What begins a turn is mostly the same few texts; the tools on offer are long ones."""
    return tokenizer.encode(text).ids


def pack_rows(documents: list[np.ndarray], length: int, eos: int) -> np.ndarray:
    """First fit into a few open rows; too long documents are left out."""
    rows: list[np.ndarray] = []
    open_rows: list[tuple[int, list[np.ndarray]]] = []

    def close(entry: tuple[int, list[np.ndarray]]) -> None:
        row = np.full(length, eos, dtype=np.uint16)
        joined = np.concatenate(entry[1])
        row[: len(joined)] = joined
        rows.append(row)

    for document in documents:
        padding = ALIGNMENT - len(document) % ALIGNMENT
        padded = np.concatenate([document, np.full(padding, eos, dtype=np.uint16)])
        if len(padded) > length:
            continue
        for index, (free, parts) in enumerate(open_rows):
            if free >= len(padded):
                open_rows[index] = (free - len(padded), [*parts, padded])
                break
        else:
            if len(open_rows) == OPEN_ROWS:
                fullest = min(range(OPEN_ROWS), key=lambda index: open_rows[index][0])
                close(open_rows.pop(fullest))
            open_rows.append((length - len(padded), [padded]))
    for entry in open_rows:
        close(entry)
    return np.stack(rows)


def build_part(job: tuple[list[tuple[str, int]], int, int]) -> np.ndarray:
    items, seed, length = job
    generators, tokenizer, eos = _state
    rng = random.Random(seed)
    documents = [encode(tokenizer, generators.draw(kind, rng, index, length)) for kind, index in items]
    return pack_rows(documents, length, eos)


def run_pack(generators: Generators, tokenizer, mix: Mix, length: int, out: Path, seed: int, share: float = 1) -> None:
    """Writes validation rows and training rows; the last file's appearance says that the stage is done.

    `share` is of the mix's conversations.
    """
    global _state
    began = time.time()
    held_out, generators.teacher = split_teacher(generators.teacher, seed)
    _state = (generators, tokenizer, tokenizer.token_to_id("<|endoftext|>"))
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / "validation.npz", **validation_rows(generators, held_out, length, seed))
    counts = {field.name: getattr(mix, field.name) for field in fields(mix)}
    counts["teacher_rounds"] *= len(generators.teacher)
    counts = {name: int(count * share) for name, count in counts.items()}
    items = [(kind, index) for kind, count in counts.items() for index in range(count)]
    random.Random(seed).shuffle(items)
    size = 1500
    jobs = [(items[i : i + size], seed + 1 + i, length) for i in range(0, len(items), size)]
    with get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        rows = np.concatenate(pool.map(build_part, jobs, chunksize=1))
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]
    np.save(out / "rows.tmp.npy", rows)
    (out / "rows.tmp.npy").rename(out / "rows.npy")
    report(rows, _state[2], began)


def split_teacher(chats: list[Chat], seed: int) -> tuple[list[Chat], list[Chat]]:
    """-> held out, for training in the seed's order: they are ranked, and a share of a mix takes the first ones."""
    rest = chats[HELD_OUT_CHATS:]
    return chats[:HELD_OUT_CHATS], random.Random(seed).sample(rest, len(rest))


def validation_rows(generators: Generators, held_out: list[Chat], length: int, seed: int) -> dict[str, np.ndarray]:
    global _state
    training = _state
    held = Generators.__new__(Generators)
    held.__dict__.update(generators.__dict__)
    held.teacher = held_out
    _state = (held, training[1], training[2])
    rows = {}
    for kind, count in VALIDATION_ITEMS.items():
        items = [(kind, index) for index in range(count)]
        rows[kind] = build_part((items, seed + 77, length))[: 65536 // length]
    _state = training
    return rows


def report(rows: np.ndarray, eos: int, began: float) -> None:
    filled = float((rows & ID_MASK != eos).mean())
    learned = float((rows >> CLASS_SHIFT >= 2).mean())
    print(
        f"{rows.shape[0]} rows of {rows.shape[1]}, {rows.size / 1e6:.0f} M tokens, {filled:.1%} filled, "
        f"{learned:.1%} with loss, {time.time() - began:.0f} s",
        flush=True,
    )
