"""Owns the corpus stage: the teacher writes chats on one GPU, the CPUs filter them."""

import os
import random
import time
from collections.abc import Callable
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch

from demo import teacher as teaching
from demo.data.prompts import PromptWriter
from demo.data.teacher_text import best_chats, make_prompts, parse_chat, write_chats
from demo.teacher import IM_START

TEXT = Path(__file__).parent / "text"
NUM_PROMPTS = 700_000
CONTEXT = 288

_tokenizer = _parse = None
_with_cut = False


def run_corpus(gguf: Path, out: Path, seconds: float, rows: int, seed: int) -> None:
    began = time.time()
    torch.manual_seed(seed)
    tensors, fields = teaching.read_gguf(gguf)
    tokenizer = teaching.read_tokenizer(fields)
    prompts = make_prompts(random.Random(seed), PromptWriter(TEXT), tokenizer, NUM_PROMPTS)
    print(f"prompts after {time.time() - began:.0f} s", flush=True)
    tags = [tokenizer.encode(f"\n<|im_start|>{role}\n").ids for role in ("assistant", "user")]
    model = teaching.Teacher(tensors, rows, CONTEXT, "cuda", torch.bfloat16)
    streams = teaching.Streams(model, prompts, (tags[0], tags[1]), num_steps=int(seconds * 70))
    tokens, scores = teaching.generate(model, streams, tokenizer.encode(teaching.SYSTEM).ids, seconds)
    print(f"generated after {time.time() - began:.0f} s", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    scored = decode_rows(tokenizer, tokens, scores, parse_chat, with_score=True)
    chats = best_chats(scored)
    random.Random(seed).shuffle(chats)
    write_chats(chats, out)
    print(f"{len(scored)} passed the filters, {len(chats)} kept, {time.time() - began:.0f} s", flush=True)


def decode_rows(
    tokenizer, tokens: np.ndarray, scores: np.ndarray, parse: Callable, with_score: bool = False, with_cut: bool = False
) -> list:
    """What `parse` makes of each finished text, without what it refuses (None); all processors take part."""
    jobs = list(zip(np.array_split(tokens, 256), np.array_split(scores, 256), strict=True))
    with Pool(os.cpu_count(), initializer=set_up, initargs=(tokenizer.to_str(), parse, with_cut)) as pool:
        pairs = [pair for part in pool.imap_unordered(decode_part, jobs) for pair in part]
    return pairs if with_score else [parsed for parsed, _ in pairs]


def set_up(tokenizer: str, parse: Callable, with_cut: bool) -> None:
    global _tokenizer, _parse, _with_cut
    from tokenizers import Tokenizer

    _tokenizer, _parse, _with_cut = Tokenizer.from_str(tokenizer), parse, with_cut


def decode_part(job: tuple[np.ndarray, np.ndarray]) -> list[tuple[Any, float]]:
    finished = [
        chat for row, scores in zip(*job, strict=True) for chat in teaching.finished_chats(row, scores, _with_cut)
    ]
    texts = _tokenizer.decode_batch([[IM_START, *ids.tolist()] for ids, _ in finished], skip_special_tokens=False)
    pairs = [(_parse(text), score) for text, (_, score) in zip(texts, finished, strict=True)]
    return [(parsed, score) for parsed, score in pairs if parsed]
