"""Owns the teacher corpus: making prompts, filtering what came back, and its files (xz-compressed JSON lines)."""

import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from demo.data.filters import fault
from demo.data.prompts import SUFFIXES, PromptWriter, without_suffix
from demo.teacher import Prompts

Chat = list[tuple[str, str]]  # (question, answer) per turn
FILE_CHATS = 130_000
MAX_SAME_QUESTION = 150
TURN = re.compile(r"<\|im_start\|>(user|assistant)\n(.*?)<\|im_end\|>", re.S)


def make_prompts(rng: random.Random, writer: PromptWriter, tokenizer, count: int) -> Prompts:
    """80 % questions that ask for a short answer, 8 % plain, 12 % where the teacher asks itself."""
    texts, asks, turns = [], [], []
    for _ in range(count):
        kind = rng.random()
        if kind < 0.12:
            texts.append("<|im_start|>user\n")
        else:
            suffix = rng.choice(SUFFIXES) if kind < 0.92 else ""
            texts.append(f"<|im_start|>user\n{writer.question(rng)}{suffix}<|im_end|>\n<|im_start|>assistant\n")
        asks.append(kind < 0.12)
        turns.append(2 if rng.random() < 0.08 else 1)
    return Prompts.encoded(tokenizer, texts, asks, turns)


def parse_chat(text: str) -> Chat | None:
    """The turns up to the first faulty one; None when the first is faulty."""
    turns = TURN.findall(text)
    chat: Chat = []
    for (role, question), (reply, answer) in zip(turns[::2], turns[1::2], strict=False):
        question, answer = without_suffix(question.strip()), answer.strip()
        is_turn = role == "user" and reply == "assistant" and 1 < len(question) < 400 and answer
        if not is_turn or fault(question, answer):
            break
        chat.append((question, answer))
    return chat or None


def best_chats(scored: list[tuple[Chat, float]], drop_share: float = 0.3) -> list[Chat]:
    """Without duplicates, the least likely answers and too many answers to one question."""
    unique = {json.dumps(chat): (chat, score) for chat, score in scored}
    floor = float(np.quantile([score for _, score in unique.values()], drop_share))
    same_question: Counter[str] = Counter()
    kept = []
    for chat, score in sorted(unique.values(), key=lambda pair: -pair[1]):
        question = chat[0][0].lower()
        same_question[question] += 1
        if score >= floor and same_question[question] <= MAX_SAME_QUESTION:
            kept.append(chat)
    return kept


def write_chats(chats: list[Chat], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, len(chats), FILE_CHATS)):
        lines = "\n".join(json.dumps(chat, ensure_ascii=False) for chat in chats[first : first + FILE_CHATS])
        (folder / f"teacher-{number}.jsonl.xz").write_bytes(lzma.compress(lines.encode(), preset=3))


def read_chats(folder: Path) -> Iterator[Chat]:
    for path in sorted(folder.glob("teacher-*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            yield [(question, answer) for question, answer in json.loads(line)]
